package checker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// served is a history in which two nodes serve every 100 ms, but for one of them, or both, in some time.
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
	return Bystanders(h, "hostile-")
}

func between(name string, from, to time.Duration) history.Fault {
	return history.Fault{Name: name, Start: int64(from), Stop: int64(to)}
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

// A node that joins after an attack, or left before it, has no clients that the attack could hurt.
func TestBystandersOfNodesThatAreNoMembers(t *testing.T) {
	const s = time.Second
	h := &history.History{Faults: []history.Fault{between("hostile-scripts", 10*s, 15*s)}}
	for at := time.Duration(0); at < 40*s; at += s / 10 {
		h.Ops = append(h.Ops, history.Op{Node: "n1", Call: int64(at), Return: int64(at) + 1, Outcome: history.OK})
		if at < 9*s {
			h.Ops = append(h.Ops, history.Op{Node: "left", Call: int64(at), Return: int64(at) + 1, Outcome: history.OK})
		}
	}
	require.Equal(t, Valid, Bystanders(h, "hostile-").Verdict)
	h.Ops = append(h.Ops, history.Op{Node: "left", Call: int64(12 * s), Return: int64(14 * s), Outcome: history.Info})
	require.Equal(t, Invalid, Bystanders(h, "hostile-").Verdict, "a client asked it")
}
