package virtual

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/replica"
)

// mutants are servers with one defect each, between the clients and the replica. The named workload must detect each
// within a few seeds. Defects inside the server are in jepsen/mutants.txt (see README.md).
var mutants = []struct {
	name     string
	workload string
	nemesis  string
	mutate   func(rng *rng, b frontend.Backend, u *replica.Batch) error
}{
	{"one write in fifty thrown away", "register", "none", dropped},
	{"one write in fifty done twice", "counter", "none", doubled},
	{"one write in fifty done twice, seen by appends", "append", "none", doubled},
	{"an unknown outcome called surely not applied", "append", "partition-deaf,partition-halves", certain},
	{"a lock taken away now and then", "lock", "none", stolen},
	{"a lock taken away now and then, from clients of one lock", "onelock", "none", stolen},
	{"leases a tenth too short", "lock", "none", shortened},
	{"keys that die a tenth too early", "ttl", "none", shortened},
	{"keys that live for ever", "ttl", "none", immortal},
	{"a fencing counter that forgets", "fencedset", "none", forgetful},
	{"transactions in two halves", "txn", "packets", torn},
}

// mutantEnv chooses a defect of jepsen/mutants.txt; .ci/mutants sets it and builds the tests with the defect's overlay.
const mutantEnv = "HOLDFAST_MUTANT"

func TestBuiltMutantIsCaught(t *testing.T) {
	name := os.Getenv(mutantEnv)
	if name == "" {
		t.Skip("no mutant is chosen: see .ci/mutants")
	}
	table, err := os.ReadFile(filepath.Join("..", "..", "mutants.txt"))
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^# mutant: ` + name + `:.*\n# virtual( \w+)?: (\S+) (\S+) (.+)$`)
	m := row.FindStringSubmatch(string(table))
	require.NotNil(t, m, name)
	how, workload, nemesis, checker := m[1], m[2], m[3], m[4]
	for seed := uint64(1); seed <= 24; seed++ {
		d := drive(t, runOptions{
			workload: workload, nemesis: nemesis, nodes: 3, stubborn: how == " stubborn",
			seed: seed, time: time.Minute, slow: how == " slow",
		})
		if d.invalid(checker) {
			t.Logf("%s: found by %s under %s, seed %d in virtual time", name, checker, nemesis, seed)
			return
		}
	}
	require.Fail(t, "not caught")
}

// Removed nodes that continue as if they were members are found.
func TestRemovedNodesThatGoOnAreFound(t *testing.T) {
	for _, nemesis := range []string{"member-away", "member-swap"} {
		d := drive(t, runOptions{
			workload: "register", nemesis: nemesis, nodes: 3, seed: 2, time: 30 * time.Second,
			light: true, undead: true,
		})
		require.True(t, d.invalid("processes"), nemesis)
	}
}

// invalid reports whether the named checker finds the run invalid. Checkers after it do not run.
func (d *driven) invalid(name string) bool {
	for r := range workload.Results(d.loads, d.h) {
		if r.Name == name {
			return r.Verdict == checker.Invalid
		}
	}
	return slices.ContainsFunc(d.others, func(r checker.Result) bool {
		return r.Name == name && r.Verdict == checker.Invalid
	})
}

// rng is a random source shared by several connections.
type rng struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *rng) oneIn(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n) == 0
}

// mutant is a backend with a defect.
type mutant struct {
	frontend.Backend
	rng    *rng
	mutate func(*rng, frontend.Backend, *replica.Batch) error
}

func (m *mutant) Execute(u *replica.Batch) error { return m.mutate(m.rng, m.Backend, u) }

func TestMutantsAreCaught(t *testing.T) {
	protocoltest.SkipShort(t, "every mutant")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			var text string
			for seed := uint64(1); seed <= 12; seed++ {
				var verdict checker.Verdict
				shared := &rng{r: rand.New(rand.NewPCG(seed, 1))}
				verdict, text = run(t, runOptions{
					workload: m.workload, nemesis: m.nemesis, nodes: 3, seed: seed, time: 25 * time.Second,
					broken: func(_ string, b frontend.Backend) frontend.Backend { return &mutant{b, shared, m.mutate} },
				})
				if verdict == checker.Invalid {
					return
				}
			}
			require.Fail(t, "not caught", text)
		})
	}
}

// requests decodes the body of a batch.
func requests(body []byte) []protocol.Request {
	var rs []protocol.Request
	rest := string(body)
	for rest != "" {
		var r protocol.Request
		var err error
		if rest, err = protocol.NextRequest(rest, &r); err != nil {
			panic(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func only(u *replica.Batch, command string) bool {
	rs := requests(u.Body)
	return len(rs) == 1 && rs[0].Args[0] == command
}

// copyOf returns a deep copy of u, whose memory is reused once it is answered.
func copyOf(u *replica.Batch) *replica.Batch {
	return &replica.Batch{Body: bytes.Clone(u.Body), Count: u.Count, Write: true}
}

func dropped(r *rng, b frontend.Backend, u *replica.Batch) error {
	if only(u, "set") && r.oneIn(50) {
		u.Replies = []protocol.Value{protocol.OK}
		return nil
	}
	return b.Execute(u)
}

func doubled(r *rng, b frontend.Backend, u *replica.Batch) error {
	if u.Write && r.oneIn(50) {
		if err := b.Execute(copyOf(u)); err != nil {
			return err
		}
	}
	return b.Execute(u)
}

// certain reports commands with an unknown outcome as not applied.
func certain(_ *rng, b frontend.Backend, u *replica.Batch) error {
	err := b.Execute(u)
	var row *protocol.Error
	if errors.As(err, &row) && row.Outcome == protocol.OutcomeUnknown {
		return &protocol.Error{Prefix: "CLUSTERDOWN", Text: "surely not applied"}
	}
	return err
}

// stolen deletes a key before a SET of it.
func stolen(r *rng, b frontend.Backend, u *replica.Batch) error {
	rs := requests(u.Body)
	if len(rs) == 1 && rs[0].Args[0] == "set" && r.oneIn(10) {
		_ = b.Execute(&replica.Batch{Body: protocoltest.AppendRequest(nil, 0, "del", rs[0].Args[1]), Count: 1, Write: true})
	}
	return b.Execute(u)
}

// withTTL runs a batch with changed durations of PX, EX and PSETEX.
func withTTL(b frontend.Backend, u *replica.Batch, change func(int64) int64) error {
	var body []byte
	for _, r := range requests(u.Body) {
		args := append([]string(nil), r.Args...)
		for i := 1; i < len(args); i++ {
			at := args[i-1]
			if n, err := strconv.ParseInt(args[i], 10, 64); err == nil {
				switch {
				case at == "PX" || at == "px", args[0] == "psetex" && i == 2:
					args[i] = strconv.FormatInt(change(n), 10)
				case at == "EX" || at == "ex":
					args[i-1], args[i] = "px", strconv.FormatInt(change(n*1000), 10)
				}
			}
		}
		body = protocoltest.AppendRequest(body, r.DB, args...)
	}
	changed := &replica.Batch{Body: body, Count: u.Count, Write: u.Write}
	err := b.Execute(changed)
	u.Replies = changed.Replies
	return err
}

func shortened(_ *rng, b frontend.Backend, u *replica.Batch) error {
	return withTTL(b, u, func(ms int64) int64 { return ms * 9 / 10 })
}

func immortal(_ *rng, b frontend.Backend, u *replica.Batch) error {
	return withTTL(b, u, func(ms int64) int64 { return ms + 60_000 })
}

// forgetful resets the counter of fencing tokens.
func forgetful(r *rng, b frontend.Backend, u *replica.Batch) error {
	rs := requests(u.Body)
	if len(rs) == 1 && len(rs[0].Args) > 4 && (rs[0].Args[0] == "evalsha" || rs[0].Args[0] == "eval") &&
		rs[0].Args[2] == "2" && r.oneIn(20) {
		_ = b.Execute(&replica.Batch{Body: protocoltest.AppendRequest(nil, 0, "del", rs[0].Args[4]), Count: 1, Write: true})
	}
	return b.Execute(u)
}

// torn runs the commands of a transaction one by one.
func torn(_ *rng, b frontend.Backend, u *replica.Batch) error {
	rs := requests(u.Body)
	if len(rs) != 1 || rs[0].Args[0] != "exec" || rs[0].Args[1] != "" {
		return b.Execute(u)
	}
	var replies []protocol.Value
	for _, r := range requests([]byte(rs[0].Args[2])) {
		one := &replica.Batch{Body: protocoltest.AppendRequest(nil, r.DB, r.Args...), Count: 1, Write: true}
		if err := b.Execute(one); err != nil {
			return err
		}
		replies = append(replies, one.Replies...)
	}
	u.Replies = []protocol.Value{protocol.Array(replies...)}
	return nil
}
