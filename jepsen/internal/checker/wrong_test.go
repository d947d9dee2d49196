package checker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// script parses a history, an operation or a fault a line:
//
//	<call>-<return> <function> <key> <inputs…> [-> <outputs…> | fail | info] [pipe <n>]
//	fault <start>-<stop> <name>
//
// Times are in milliseconds. Each operation has a process of its own.
func script(t *testing.T, text string) *history.History {
	t.Helper()
	h := &history.History{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "fault" {
			var f history.Fault
			_, err := fmt.Sscanf(words[1], "%d-%d", &f.Start, &f.Stop)
			require.NoError(t, err)
			f.Name = strings.Join(words[2:], " ")
			f.NoExcuse = strings.HasPrefix(f.Name, "clock-")
			f.Start, f.Stop = f.Start*int64(time.Millisecond), f.Stop*int64(time.Millisecond)
			h.Faults = append(h.Faults, f)
			continue
		}
		o := history.Op{Index: len(h.Ops), Process: len(h.Ops), F: words[1], Key: words[2], Outcome: history.OK}
		_, err := fmt.Sscanf(words[0], "%d-%d", &o.Call, &o.Return)
		require.NoError(t, err, line)
		o.Call, o.Return = o.Call*int64(time.Millisecond), o.Return*int64(time.Millisecond)
		into := &o.Input
		for i := 3; i < len(words); i++ {
			switch w := words[i]; w {
			case "->":
				into = &o.Output
			case "fail", "info":
				o.Outcome, o.Error = history.Outcome(w), "told so"
			case "left":
				o.Outcome, o.Error = history.Info, Deserted
			case "pipe":
				o.Pipe, err = strconv.Atoi(words[i+1])
				require.NoError(t, err)
				i++
			default:
				n, err := strconv.ParseInt(w, 10, 64)
				require.NoError(t, err, line)
				*into = append(*into, n)
			}
		}
		h.Ops = append(h.Ops, o)
	}
	require.NoError(t, h.Validate())
	return h
}

var (
	register   = Linear("register", Register(), RegisterFunctions)
	counter    = Linear("counter", Counter(), CounterFunctions)
	ownerLock  = Linear("lock", OwnerLock(Clocks{}), LockFunctions)
	fencedLock = Linear("fenced lock", FencedLock(Clocks{}), LockFunctions)
	exclusion  = Exclusion(Clocks{})
	ttl        = TTL(TTLBounds{Late: 500 * time.Millisecond, Settle: time.Second})
)

const noOrder = "no order of its"

// sample is a history. If finds is not empty, the history is wrong, and the checker must report that text. Otherwise it
// is right, although a checker that is too strict would refuse it.
type sample struct {
	name  string
	check Func
	text  string
	finds string
}

var histories = []sample{
	{"register: lost update", register, `
		0-10   write r 1
		20-30  cas   r 1 2 -> 1
		40-50  read  r -> 1`, noOrder},
	{"register: both of two compare-and-sets win", register, `
		0-10   write r 1
		20-30  cas   r 1 2 -> 1
		20-30  cas   r 1 3 -> 1`, noOrder},
	{"register: stale read", register, `
		0-10   write r 1
		20-30  write r 2
		40-50  read  r -> 1`, noOrder},
	{"register: a read goes back behind another read", register, `
		0-10   write r 1
		20-90  write r 2
		30-40  read  r -> 2
		50-60  read  r -> 1`, noOrder},
	{"register: what failed is seen", register, `
		0-10   write r 1
		20-30  write r 2 fail
		40-50  read  r -> 2`, noOrder},
	{"register: acknowledged and gone", register, `
		0-10   write r 1
		20-30  read  r ->`, noOrder},
	{"register: half a script is seen", register, `
		0-10   write r 1
		20-90  write r 2
		30-40  read  r -> 2 1 2`, noOrder},
	{"register: a concurrent write may be seen or not", register, `
		0-10   write r 1
		20-90  write r 2
		30-40  read  r -> 1
		50-60  read  r -> 2`, ""},
	{"register: an unknown write may land late", register, `
		0-10   write r 1
		20-30  write r 2 info
		40-50  read  r -> 1
		60-70  read  r -> 2`, ""},
	{"register: an unknown write may never land", register, `
		0-10   write r 1
		20-30  write r 2 info
		60-70  read  r -> 1`, ""},
	{"register: an unknown write lands once", register, `
		0-10   write r 1
		20-30  cas r 1 2 info
		40-50  read  r -> 2
		60-70  write r 1
		80-90  read  r -> 2`, noOrder},

	{"counter: an increment applied twice", counter, `
		0-10   add c 1 -> 1
		20-30  add c 1 -> 3`, noOrder},
	{"counter: an increment lost", counter, `
		0-10   add c 1 -> 1
		20-30  add c 1 -> 2
		40-50  read c -> 1`, noOrder},
	{"counter: an unknown increment explains a gap", counter, `
		0-10   add c 1 -> 1
		12-15  add c 1 info
		20-30  add c 1 -> 3`, ""},
	{"increments: handed out twice", Increments, `
		0-50   add c 1 -> 1
		20-60  add c 1 -> 1`, "handed out twice"},
	{"increments: backwards", Increments, `
		0-10   add c 1 -> 3
		0-10   add c 1 -> 2
		0-10   add c 1 info
		20-30  add c 1 -> 1`, "though before it began"},
	{"increments: stale read", Increments, `
		0-10   add c 1 -> 1
		11-15  add c 1 -> 2
		20-30  read c -> 1`, "though before it began"},
	{"increments: applied twice", Increments, `
		0-10   add c 1 -> 2`, "though only 1 additions"},
	{"increments: out of order in a pipeline", Increments, `
		0-50   add c 1 -> 2 pipe 1
		0-50   add c 1 -> 1 pipe 1`, "out of order within a pipeline"},
	{"increments: concurrent ones in any order", Increments, `
		0-50   add c 1 -> 2
		0-40   add c 1 -> 1
		60-70  read c -> 2`, ""},

	{"lock: two holders", exclusion, `
		0-10   acquire l 1 1000 -> 1
		50-60  acquire l 2 1000 -> 1`, "two holders"},
	{"lock: two holders, as its model sees it", ownerLock, `
		0-10   acquire l 1 1000 -> 1
		50-60  acquire l 2 1000 -> 1`, noOrder},
	{"lock: granted again after the ttl", exclusion, `
		0-10      acquire l 1 1000 -> 1
		1000-1060 acquire l 2 1000 -> 1`, ""},
	{"lock: granted again after the ttl, as its model sees it", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		990-1060  acquire l 2 1000 -> 1`, ""},
	{"lock: granted again just before the ttl", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		980-999   acquire l 2 1000 -> 1`, noOrder},
	{"lock: granted while the release is under way", exclusion, `
		0-10     acquire l 1 1000 -> 1
		20-100   release l 1 -> 1
		30-40    acquire l 2 1000 -> 1`, ""},
	{"lock: granted while the release is under way, as its model sees it", ownerLock, `
		0-10     acquire l 1 1000 -> 1
		20-100   release l 1 info
		30-40    acquire l 2 1000 -> 1`, ""},
	{"lock: an extension that was lost", exclusion, `
		0-10      acquire l 1 1000 -> 1
		900-910   extend  l 1 1000 -> 1
		1200-1210 acquire l 2 1000 -> 1`, "two holders"},
	{"lock: an extension that was lost, as its model sees it", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		900-910   extend  l 1 1000 -> 1
		1200-1210 acquire l 2 1000 -> 1`, noOrder},
	{"lock: a lease lost, found by the release", exclusion, `
		0-10      acquire l 1 1000 -> 1
		200-210   release l 1 -> 0`, "lost a lease"},
	{"lock: a lease lost, found by the extension", exclusion, `
		0-10      acquire l 1 1000 -> 1
		200-210   extend l 1 1000 -> 0`, "lost a lease"},
	{"lock: a lease lost, found by looking", exclusion, `
		0-10      acquire l 1 1000 -> 1
		200-210   holder l ->`, "lost a lease"},
	{"lock: a lease lost, as its model sees it", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		200-210   holder l ->`, noOrder},
	{"lock: a lease that is over may be denied", exclusion, `
		0-10      acquire l 1 1000 -> 1
		995-1010  release l 1 -> 0`, ""},
	{"lock: refused though free", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		20-30     release l 1 -> 1
		40-50     acquire l 2 1000 -> 0`, noOrder},
	{"lock: refused after the ttl, as a failover may lengthen a lease", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		4000-4050 acquire l 2 1000 -> 0
		5000-5050 acquire l 2 1000 -> 1`, ""},
	{"lock: held on after it was seen free", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		4000-4050 holder l ->
		5000-5050 holder l -> 1`, noOrder},
	{"lock: an acquire that nobody waited for lands late", ownerLock, `
		0-10      acquire l 1 1000 info
		20-30     holder l ->
		40-50     acquire l 2 1000 -> 0
		60-70     holder l -> 1`, ""},
	{"lock: somebody else's release", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		20-30     release l 2 -> 1`, noOrder},
	{"lock: an unknown acquire cannot end a lease that runs", ownerLock, `
		0-10      acquire l 1 1000 -> 1
		20-30     acquire l 2 1000 info
		40-50     holder l -> 2`, noOrder},

	{"fence: a token used again", fencedLock, `
		0-10      acquire l 1 1000 -> 1 5
		20-30     release l 1 -> 1
		40-50     acquire l 2 1000 -> 1 5`, noOrder},
	{"tokens: used again", Tokens, `
		0-10      acquire l 1 1000 -> 1 5
		20-30     release l 1 -> 1
		40-50     acquire l 2 1000 -> 1 5`, "given twice"},
	{"tokens: a smaller one later", Tokens, `
		0-10      acquire l 1 1000 -> 1 5
		40-50     acquire l 2 1000 -> 1 4`, "is not larger"},
	{"tokens: growing", Tokens, `
		0-10      acquire l 1 1000 -> 1 5
		20-30     release l 1 -> 1
		40-50     acquire l 2 1000 -> 1 9`, ""},

	{"set: a former holder wrote over another", GuardedSet, `
		0-10      add s 1 1
		20-30     add s 2 2
		40-50     final s -> 2`, "overwritten"},
	{"set: what was refused is there", GuardedSet, `
		0-10      add s 1 1 fail
		40-50     final s -> 1`, "what was refused"},
	{"set: everything there", GuardedSet, `
		0-10      add s 1 1
		20-30     add s 2 1 fail
		40-50     final s -> 1`, ""},

	{"list: an append lost", List, `
		0-10      append l 1 -> 1
		20-30     append l 2 -> 2
		40-50     read-list l -> 2`, "lost"},
	{"list: an append applied twice", List, `
		0-10      append l 1 -> 1
		40-50     read-list l -> 1 1`, "there twice"},
	{"list: stale read", List, `
		0-10      append l 1 -> 1
		20-30     append l 2 -> 2
		40-50     read-list l -> 1
		60-70     read-list l -> 1 2`, "stale"},
	{"list: two histories", List, `
		0-10      append l 1 -> 1
		0-10      append l 2 -> 1
		40-50     read-list l -> 1
		60-70     read-list l -> 2 1`, "is not the beginning"},
	{"list: what failed is there", List, `
		0-10      append l 1 fail
		40-50     read-list l -> 1`, "what failed is there"},
	{"list: out of nowhere", List, `
		40-50     read-list l -> 1`, "no client appended"},
	{"list: before what was there", List, `
		0-10      append l 1 -> 2
		20-30     append l 2 -> 1
		40-50     read-list l -> 2 1`, "took a place before"},
	{"list: an unknown append", List, `
		0-10      append l 1 -> 1
		10-15     append l 2 info
		20-30     read-list l -> 1
		40-50     append l 3 -> 3
		60-70     read-list l -> 1 2 3`, ""},

	{"ttl: died early", ttl, `
		0-10      set k 1000
		500-510   alive k -> 0`, "early"},
	{"ttl: died early after an extension", ttl, `
		0-10      set k 1000
		900-910   expire k 1000 -> 1
		1500-1510 alive k -> 0`, "early"},
	{"ttl: died in time", ttl, `
		0-10      set k 1000
		990-1005  alive k -> 0`, ""},
	{"ttl: outlived", ttl, `
		0-10      set k 1000
		2000-2010 alive k -> 1`, "outlived"},
	{"ttl: a fault may lengthen a lease", ttl, `
		fault 100-900
		0-10      set k 1000
		2000-2010 alive k -> 1`, ""},
	{"ttl: a wall clock must not lengthen a lease", ttl, `
		fault 100-900 clock-jump
		0-10      set k 1000
		2000-2010 alive k -> 1`, "outlived"},
	{"ttl: a fault before it does not", ttl, `
		fault 100-200
		1500-1510 set k 1000
		3100-3110 alive k -> 1`, "outlived"},
	{"ttl: came back", ttl, `
		0-10      set k 1000
		1100-1110 alive k -> 0
		1200-1210 alive k -> 1`, "came back"},
	{"ttl: says too little", ttl, `
		0-10      set k 1000
		100-110   pttl k -> 500`, "less than what is left"},
	{"ttl: says too much", ttl, `
		0-10      set k 1000
		100-110   pttl k -> 1001`, "more than any ttl"},
	{"ttl: says what is left", ttl, `
		0-10      set k 1000
		100-110   pttl k -> 895`, ""},
	{"ttl: an unknown extension may lengthen it at any time", ttl, `
		0-10      set k 1000
		100-110   expire k 1000 info
		4000-4010 alive k -> 1`, ""},
}

func TestHistoriesWrongOnPurposeAreFound(t *testing.T) { judge(t, histories) }

func judge(t *testing.T, samples []sample) {
	t.Helper()
	for _, c := range samples {
		t.Run(c.name, func(t *testing.T) {
			r := c.check(script(t, c.text))
			if c.finds == "" {
				require.Zero(t, r.Total, "%s", r)
				return
			}
			require.Equal(t, Invalid, r.Verdict, "%s", r)
			require.Contains(t, r.String(), c.finds)
		})
	}
}

func TestTransactionsWrongOnPurposeAreFound(t *testing.T) {
	check := Linear("txn", Transactions(), TransactionFunctions)
	r := func(key string, list ...int64) history.Micro { return history.Micro{F: "r", Key: key, List: list} }
	a := func(key string, v int64) history.Micro { return history.Micro{F: "append", Key: key, Value: v} }
	txn := func(call, end int64, steps ...history.Micro) history.Op {
		return history.Op{F: "txn", Key: "g", Txn: steps, Outcome: history.OK, Call: call, Return: end}
	}
	cases := []struct {
		name  string
		wrong bool
		ops   []history.Op
	}{
		{"write skew", true, []history.Op{
			txn(0, 9, r("x"), a("y", 1)), txn(0, 9, r("y"), a("x", 2)), txn(20, 30, r("x", 2), r("y", 1)),
		}},
		{"half a transaction seen", true, []history.Op{
			txn(0, 90, a("x", 1), a("y", 1)), txn(10, 20, r("x", 1), r("y")),
		}},
		{"stale", true, []history.Op{txn(0, 9, a("x", 1)), txn(10, 20, r("x"))}},
		{"one after the other", false, []history.Op{
			txn(0, 9, r("x"), a("y", 1)), txn(0, 9, r("y", 1), a("x", 2)), txn(20, 30, r("x", 2), r("y", 1)),
		}},
		{"reads its own append", false, []history.Op{txn(0, 9, r("x"), a("x", 1), r("x", 1))}},
	}
	for _, c := range cases {
		for i := range c.ops {
			c.ops[i].Index, c.ops[i].Process = i, i
		}
		got := check(&history.History{Ops: c.ops})
		require.Equal(t, c.wrong, got.Verdict == Invalid, "%s: %s", c.name, got)
	}
}

func TestNothingDoneShowsNothing(t *testing.T) {
	for _, check := range []Func{register, counter, ownerLock, exclusion, Increments, List, ttl, Tokens, GuardedSet} {
		require.Equal(t, Unknown, check(&history.History{}).Verdict)
	}
	require.Equal(t, Unknown, Worst(nil))
	require.Equal(t, Invalid, Worst([]Result{{Verdict: Valid}, {Verdict: Invalid}, {Verdict: Unknown}}))
}

func TestDriftIsAllowedForAndNoMore(t *testing.T) {
	text := `
		0-10      acquire l 1 1000 -> 1
		905-910   acquire l 2 1000 -> 1`
	require.Zero(t, Exclusion(Clocks{Drift: 0.1})(script(t, text)).Total)
	require.Zero(t, Linear("lock", OwnerLock(Clocks{Drift: 0.1}), LockFunctions)(script(t, text)).Total)
	require.Equal(t, 1, Exclusion(Clocks{Drift: 0.05})(script(t, text)).Total)
	require.Equal(t, 1, Linear("lock", OwnerLock(Clocks{Drift: 0.05}), LockFunctions)(script(t, text)).Total)
}

func TestAvailabilityCountsSilenceAndRecovery(t *testing.T) {
	h := script(t, `
		fault 1000-2000
		0-10       read r -> 1
		900-950    read r -> 1
		1100-2500  read r info
		2200-2400  read r -> 1
		2600-2700  read r -> 1`)
	for i := range h.Ops {
		h.Ops[i].Node = []string{"n1", "n2"}[i/4]
	}
	got := Availability(h)
	require.Len(t, got, 1)
	require.Equal(t, 1450*time.Millisecond, got[0].Silence)
	require.Equal(t, 700*time.Millisecond, got[0].Recovery)
	require.Equal(t, "n2", got[0].Slowest)
}

// TestMembersThatComeAndGoDoNotRecover shows that a node that joined after a fault, or left before its end, does not
// count for the recovery.
func TestMembersThatComeAndGoDoNotRecover(t *testing.T) {
	h := script(t, `
		fault 1000-2000
		fault 5000-6000
		900-950    read r -> 1
		2100-2200  read r -> 1
		5500-6100  read r -> 1
		6150-6200  read r -> 1
		500-600    read r -> 1
		7000-7100  read r -> 1`)
	for i := range h.Ops {
		h.Ops[i].Node = []string{"n1", "n1", "n1", "n1", "left", "came"}[i]
	}
	got := Availability(h)
	require.Equal(t, []time.Duration{200 * time.Millisecond, 1100 * time.Millisecond}, []time.Duration{
		got[0].Recovery,
		got[1].Recovery,
	})
	require.Equal(t, []string{"n1", "came"}, []string{got[0].Slowest, got[1].Slowest})
}

func TestRecoveryCountsFromWhenAllIsMended(t *testing.T) {
	h := script(t, `
		fault 1000-2000
		fault 1500-6000
		fault 9000-9500
		0-10       read r -> 1
		6100-6300  read r -> 1
		9900-9950  read r -> 1`)
	for i := range h.Ops {
		h.Ops[i].Node = "n1"
	}
	got := Availability(h)
	require.Len(t, got, 3)
	require.Equal(t, 300*time.Millisecond, got[0].Recovery, "the second fault was still on when the first was over")
	require.Equal(t, 300*time.Millisecond, got[1].Recovery)
	require.Equal(t, 450*time.Millisecond, got[2].Recovery)
}

// TestALeaseLastsLongerByTheTimeWithoutALeader shows that a key may outlive its TTL by a time in which no client got a
// reply, even without a fault: on a busy machine the leader may step down. A time in which no client sent a request is
// no excuse.
func TestALeaseLastsLongerByTheTimeWithoutALeader(t *testing.T) {
	served := script(t, `
		0-10       set k 400 ->
		20-1600    read r -> 1
		1700-1710  alive k -> 1`)
	asleep := script(t, `
		0-10       set k 400 ->
		20-30      read r -> 1
		1500-1600  read r -> 1
		1700-1710  alive k -> 1`)
	for _, h := range []*history.History{served, asleep} {
		require.Positive(t, ttl(h).Total, "as long as nobody knows who was answered")
		for i := range h.Ops {
			h.Ops[i].Node = "n1"
		}
	}
	ofTTL := func(o *history.Op) bool { return o.Key == "k" }
	require.Zero(t, ttl(served.Filter(ofTTL)).Total)
	require.Equal(t, 1, ttl(asleep.Filter(ofTTL)).Total)
}
