package fsm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

const tokenScript = "return tostring(math.random(1, 1000000000))"

// TestTokensDiffer: no two scripts draw the same token, in one batch, in a transaction, in one entry, or after a
// restart of a node or leader, even without writes in between.
func TestTokensDiffer(t *testing.T) {
	d := newDriver(t)
	seen := map[string]string{}
	take := func(where string, v protocol.Value) {
		t.Helper()
		for _, e := range v.Elems {
			require.Empty(t, seen[e.Str], "%s draws what was drawn by: %s", e.Str, where)
			seen[e.Str] = where
		}
	}
	eval := request(nil, 0, "eval", tokenScript, "0")
	evalReadOnly := request(nil, 0, "eval_ro", tokenScript, "0")
	var body []byte
	for range 4 {
		body = append(append(body, eval...), evalReadOnly...)
		body = protocol.AppendTransaction(body, 0, nil, append(append([]byte{}, eval...), evalReadOnly...))
	}
	entry := func(origins ...protocol.Incarnation) {
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		for _, o := range origins {
			w.Add(o, 0, 0, body)
			w.Add(o, 0, 1, body)
		}
		var r recorder
		require.NoError(t, d.m.Apply(w.Bytes(), &r))
		require.Zero(t, r.skipped)
		for _, v := range r.replies {
			if v.Kind == protocol.KindBulk {
				v = protocol.Array(v)
			}
			take(fmt.Sprint(origins), v)
		}
	}
	entry(protocol.Incarnation{Node: "n1", Epoch: 1}, protocol.Incarnation{Node: "n2", Epoch: 1})
	entry(protocol.Incarnation{Node: "n1", Epoch: 2}, protocol.Incarnation{Node: "n3", Epoch: 1})
	for _, node := range []string{"n1", "n2"} {
		for epoch := range uint64(3) {
			d.m.SeedReads(protocol.Incarnation{Node: node, Epoch: epoch})
			for range 3 {
				v, _ := d.read("eval_ro", tokenScript, "0")
				take("a read of "+node, protocol.Array(v))
			}
		}
	}
	require.Len(t, seen, 4*2*16+18)
}

// TestTokensAgree: all nodes draw alike, also one that skips reads because it has no client for the replies.
func TestTokensAgree(t *testing.T) {
	loud, quiet := newMachine(), newMachine()
	var body []byte
	for range 3 {
		body = request(body, 0, "eval_ro", tokenScript, "0")
		body = request(body, 0, "eval", "return redis.call('append', 'k', math.random(1, 1000000000))", "0")
	}
	w := protocol.NewEntry(nil, protocol.EntryVersion, 1000, 0, protocol.EntryLimits{})
	w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, 0, 0, body)
	require.NoError(t, loud.Apply(w.Bytes(), new(recorder)))
	require.NoError(t, quiet.Apply(w.Bytes(), clientless{}))
	require.Equal(t, loud.Hash(), quiet.Hash())
}

// TestRandomSeed: a script that sets a seed gets Redis's numbers.
func TestRandomSeed(t *testing.T) {
	d := newDriver(t)
	const source = "math.randomseed(3) return tostring(math.random(1, 1000000000))"
	first := d.do("eval", source, "0")
	require.Equal(t, first, d.do("eval", source, "0"))
}
