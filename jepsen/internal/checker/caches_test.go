package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

func TestCachesWrongOnPurposeAreFound(t *testing.T) {
	caches := Caches(TTLBounds{Late: time.Second, Settle: time.Second})
	judge(t, []sample{
		{"read again when told", caches, `
			0-10    raise k 1
			20-30   read  k -> 1
			40-50   raise k 2
			60-60   cached k -> 1
			70-80   read  k -> 2
			90-90   cached k -> 2`, ""},
		{"a change that the client was not told of", caches, `
			0-10    raise k 1
			20-30   read  k -> 1
			40-50   raise k 2
			1090-1090 cached k -> 1`, "older than"},
		{"read before the write, and behind the news", caches, `
			0-10    raise k 1
			20-60   raise k 2
			30-50   read  k -> 1
			1090-1090 cached k -> 1`, "older than"},
		{"a change on its way", caches, `
			0-10    raise k 1
			20-60   raise k 2
			990-990 cached k -> 1`, ""},
		{"a change on its way for too long", caches, `
			0-10    raise k 1
			20-60   raise k 2
			1990-1990 cached k -> 1`, "older than"},
		{"a change on its way for long, as something is broken", caches, `
			fault 10-20
			0-10    raise k 1
			20-60   raise k 2
			1990-1990 cached k -> 1`, ""},
		{"a stale read", caches, `
			0-10    raise k 1
			20-30   read  k ->`, "stale"},
		{"an old write lands late", caches, `
			0-10    raise k 2
			20-30   raise k 1
			40-50   read  k -> 2`, ""},
		{"nobody knows whether it was written", caches, `
			0-10    raise k 1
			20-30   raise k 2 info
			40-50   read  k -> 1
			60-70   read  k -> 2`, ""},
		{"what failed is there", caches, `
			20-30   raise k 2 fail
			40-50   read  k -> 2`, "no client wrote"},
	})
}

func TestMessagesWrongOnPurposeAreFound(t *testing.T) {
	judge(t, []sample{
		{"in order", Messages, `
			0-10  publish c 0 1
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 1 2`, ""},
		{"two publish at a time, and all hear one order", Messages, `
			0-30  publish c 0 1
			0-30  publish c 1 2
			50-50 heard   c 3 0 0 -> 2 1
			50-50 heard   c 3 0 0 -> 2 1
			50-50 heard   c 1 0 0 -> 1`, ""},
		{"two orders", Messages, `
			0-30  publish c 0 1
			0-30  publish c 0 2
			50-50 heard   c 1 0 0 -> 1 2
			50-50 heard   c 1 0 0 -> 2 1`, "before and behind itself"},
		{"two orders of two channels", Messages, `
			0-30  publish c 0 1
			0-30  publish c 1 2
			50-50 heard   c 3 0 0 -> 1 2
			50-50 heard   c 3 0 0 -> 2 1`, "before and behind itself"},
		{"one hears what another missed", Messages, `
			0-90  publish c 0 1
			0-90  publish c 0 2
			0-90  publish c 0 3
			95-95 heard   c 1 0 0 -> 1 2 3
			95-95 heard   c 1 0 0 -> 1 3`, "behind 1 came 2 for one"},
		{"one hears something before, which another missed", Messages, `
			0-90  publish c 0 1 info
			0-90  publish c 0 2
			0-90  publish c 0 3
			95-95 heard   c 1 0 0 -> 1 3
			95-95 heard   c 1 0 0 -> 2 3`, "before 3 came 1 for one"},
		{"one listens to a channel, another to both", Messages, `
			0-90  publish c 0 1
			0-90  publish c 1 2
			0-90  publish c 0 3
			95-95 heard   c 3 0 0 -> 1 2 3
			95-95 heard   c 1 0 0 -> 1 3`, ""},
		{"acknowledged before the other was published", Messages, `
			0-10  publish c 0 1
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 2 1`, "though it was acknowledged before"},
		{"nobody knows when", Messages, `
			0-10  publish c 0 1 info
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 2 1`, ""},
		{"the other way round than sent", Messages, `
			0-10  publish c 0 1 2
			50-50 heard   c 1 0 0 -> 2 1`, "too early"},
		{"a gap", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			50-60 publish c 0 3
			70-70 heard   c 1 0 0 -> 1 3`, "2 was not heard"},
		{"a gap before the first", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 5000000 0 -> 2`, "1 was not heard"},
		{"published before the subscription", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 15000000 0 -> 2`, ""},
		{"behind what was heard last", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 0 0 -> 1`, ""},
		{"behind what was heard last, though there was time", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 0 60000000 -> 1`, "2 was not heard"},
		{"nobody knows whether it was published", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2 info
			50-60 publish c 0 3
			70-70 heard   c 1 0 60000000 -> 1 3
			70-70 heard   c 1 0 60000000 -> 1 3`, ""},
		{"twice", Messages, `
			10-20 publish c 0 1
			70-70 heard   c 1 0 0 -> 1 1`, "heard twice"},
		{"failed", Messages, `
			10-20 publish c 0 1 fail
			70-70 heard   c 1 0 0 -> 1`, "what failed"},
		{"out of nowhere", Messages, `
			70-70 heard   c 1 0 0 -> 1`, "no client published"},
		{"another channel", Messages, `
			10-20 publish c 1 1
			70-70 heard   c 1 0 0 -> 1`, "another channel"},
	})
}

func TestRightsWrongOnPurposeAreFound(t *testing.T) {
	rights := Rights(Owner{Prefix: "a:", First: 10, Last: 14}, Owner{Prefix: "b:", First: 20, Last: 24, MaxKeys: 2})
	judge(t, []sample{
		{"refused", rights, `
			0-10    trespass a:1 0 25 -> 1
			20-30   trespass b:1 0 15 -> 1
			40-50   trespass b:1 0 15 info
			60-70   trespass b:1 0 15 fail`, ""},
		{"not refused", rights, `
			0-10    trespass a:1 0 25 -> 0`, "was not refused"},
		{"own values", rights, `
			0-10    write a:1 10
			20-30   read a:1 -> 10
			40-50   read a:1 -> 14
			60-70   read b:1 ->
			80-90   write b:1 -1`, ""},
		{"a refused command has an effect on its own keys", rights, `
			0-10    read a:1 -> 15`, "did not write"},
		{"the other user's value", rights, `
			0-10    read b:1 -> 14`, "did not write"},
		{"as many keys as the quota", rights, `
			0-10    count b:* -> 2
			20-30   count a:* -> 5`, ""},
		{"more keys than the quota", rights, `
			0-10    count b:* -> 3`, "more keys than the quota of 2"},
	})
	errors := []struct{ f, key, why, finds string }{
		{"write", "b:1", "QUOTA command not allowed: user 'b' has all of its 2 keys", ""},
		{"write", "a:1", "QUOTA command not allowed: user 'a' has all of its 2 keys", "there is no quota"},
		{"write", "b:1", "NOPERM this user has no permissions", "of the owner was refused"},
		{"write", "b:1", "ERR The user executing the script can't access", "of the owner was refused"},
		{"write", "b:1", "CLUSTERDOWN No leader is known", ""},
		{"trespass", "b:1", "CLUSTERDOWN No leader is known", ""},
		{"trespass", "b:1", "ERR value is not an integer", "for another reason"},
		{"trespass", "b:1", "QUOTA command not allowed", "for another reason"},
		{"trespass", "b:1", "NOPERM this user has no permissions to run the 'set' command", "for another reason"},
	}
	for _, e := range errors {
		t.Run(e.f+" "+e.key+" "+e.why, func(t *testing.T) {
			h := script(t, "0-10 "+e.f+" "+e.key+" 1 fail")
			h.Ops[0].Error = e.why
			r := rights(h)
			require.Equal(t, e.finds != "", r.Total == 1, "%s", r)
			require.Contains(t, r.String(), e.finds)
		})
	}
}

// served judges a history in which two nodes serve every 100 ms, except that the silent one, or both for "all", does
// not serve between from and to.
func served(t *testing.T, silent string, from, to time.Duration, faults ...history.Fault) Result {
	t.Helper()
	h := &history.History{Faults: faults}
	for at := time.Duration(0); at < 40*time.Second; at += 100 * time.Millisecond {
		for _, node := range []string{"n1", "n2"} {
			if at > from && at < to && (silent == node || silent == "all") {
				h.Ops = append(h.Ops, history.Op{Node: node, Call: int64(at), Return: int64(at) + 1, Outcome: history.Fail})
				continue
			}
			h.Ops = append(h.Ops, history.Op{Node: node, Call: int64(at), Return: int64(at) + 1, Outcome: history.OK})
		}
	}
	return Bystanders(h, "hostile")
}

func between(name string, from, to time.Duration) history.Fault {
	group, _, _ := strings.Cut(name, "-")
	return history.Fault{Name: name, Start: int64(from), Stop: int64(to), Nature: history.Nature{Group: group}}
}

func TestBystanders(t *testing.T) {
	const s = time.Second
	attack := between("hostile-scripts", 10*s, 15*s)
	cases := []struct {
		name     string
		silent   string
		from, to time.Duration
		faults   []history.Fault
		want     Verdict
	}{
		{"all are served", "", 0, 0, []history.Fault{attack}, Valid},
		{"nobody for a while", "all", 11 * s, 14 * s, []history.Fault{attack}, Valid},
		{"nobody for long", "all", 11 * s, 17 * s, []history.Fault{attack}, Invalid},
		{"nobody until the end", "all", 14 * s, 40 * s, []history.Fault{attack}, Invalid},
		{"nobody long after", "all", 14 * s, 30 * s, []history.Fault{attack}, Invalid},
		{"one node is slow", "n2", 11 * s, 18 * s, []history.Fault{attack}, Valid},
		{"one node is silent", "n2", 11 * s, 22 * s, []history.Fault{attack}, Invalid},
		{"something else is broken", "all", 11 * s, 17 * s, []history.Fault{attack, between("kill-all", 11*s, 12*s)}, Valid},
		{
			"something else breaks later", "all", 14 * s, 30 * s,
			[]history.Fault{attack, between("kill-all", 18*s, 19*s)},
			Valid,
		},
		{"that comes too late", "all", 14 * s, 30 * s, []history.Fault{attack, between("kill-all", 21*s, 22*s)}, Invalid},
		{"another fault", "all", 11 * s, 17 * s, []history.Fault{between("kill-all", 10*s, 15*s)}, Valid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := served(t, c.silent, c.from, c.to, c.faults...)
			require.Equal(t, c.want, r.Verdict, r)
		})
	}
}

// TestBystandersOfNodesThatAreNoMembers shows that a node that joins after an attack, or left before it, is not judged,
// since it has no clients that the attack could affect.
func TestBystandersOfNodesThatAreNoMembers(t *testing.T) {
	const s = time.Second
	h := &history.History{Faults: []history.Fault{between("hostile-scripts", 10*s, 15*s)}}
	for at := time.Duration(0); at < 40*s; at += s / 10 {
		h.Ops = append(h.Ops, history.Op{Node: "n1", Call: int64(at), Return: int64(at) + 1, Outcome: history.OK})
		if at < 9*s {
			h.Ops = append(h.Ops, history.Op{Node: "left", Call: int64(at), Return: int64(at) + 1, Outcome: history.OK})
		}
	}
	require.Equal(t, Valid, Bystanders(h, "hostile").Verdict)
	h.Ops = append(h.Ops, history.Op{Node: "left", Call: int64(12 * s), Return: int64(14 * s), Outcome: history.Info})
	require.Equal(t, Invalid, Bystanders(h, "hostile").Verdict, "a client asked it")
}
