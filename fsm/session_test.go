package fsm

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestSessionAgainstSet compares a session with a set of numbers.
func TestSessionAgainstSet(t *testing.T) {
	for seed := range int64(200) {
		rng := rand.New(rand.NewSource(seed))
		s := session{}
		applied := map[uint64]bool{}
		low := uint64(0)
		for range 300 {
			if rng.Intn(10) == 0 {
				low += uint64(rng.Intn(5))
			}
			seq := low + uint64(rng.Intn(30))
			if rng.Intn(8) == 0 {
				seq = uint64(rng.Intn(int(low) + 1))
			}
			s.advance(low)
			want := seq >= low && !applied[seq]
			require.Equal(t, seq < low || applied[seq], s.has(seq))
			require.Equal(t, want, s.add(seq), "seed %d", seed)
			applied[seq] = applied[seq] || want
			require.NoError(t, s.verify())
		}
	}
}

// Batches that arrive in order take one span, however many they are.
func TestSessionStaysSmall(t *testing.T) {
	var ss sessions
	for seq := range uint64(10_000) {
		b := protocol.Batch{Origin: origin, Low: 0, Seq: seq}
		require.True(t, ss.begin(&b))
	}
	require.Len(t, ss[0].applied, 1)
	// The number of spans is limited even if every other batch never arrives.
	for seq := uint64(20_000); seq < 60_000; seq += 2 {
		b := protocol.Batch{Origin: origin, Low: 0, Seq: seq}
		require.True(t, ss.begin(&b))
	}
	require.LessOrEqual(t, len(ss[0].applied), maxRanges)
	// None is applied again, not even those too many to be remembered individually.
	for seq := uint64(20_000); seq < 60_000; seq += 2 {
		b := protocol.Batch{Origin: origin, Seq: seq}
		require.True(t, ss.done(origin, seq))
		require.False(t, ss.begin(&b))
	}
	require.NoError(t, ss[0].verify())
}

// Batches of a node's previous incarnation count as applied, whatever their number, since none is applied any more.
func TestFormerLifeIsDone(t *testing.T) {
	var ss sessions
	ss.begin(&protocol.Batch{Origin: protocol.Incarnation{Node: "a", Epoch: 2}, Seq: 5})
	for epoch, want := range map[uint64]bool{1: true, 2: false, 3: false} {
		require.Equal(t, want, ss.done(protocol.Incarnation{Node: "a", Epoch: epoch}, 6), "epoch %d", epoch)
	}
	require.True(t, ss.done(protocol.Incarnation{Node: "a", Epoch: 1}, 5))
	require.True(t, ss.done(protocol.Incarnation{Node: "a", Epoch: 2}, 5))
	require.False(t, ss.done(protocol.Incarnation{Node: "b", Epoch: 1}, 5))
}

func TestSessionsAreOrdered(t *testing.T) {
	var ss sessions
	for _, node := range []string{"c", "a", "d", "b", "a"} {
		ss.begin(&protocol.Batch{Origin: protocol.Incarnation{Node: node, Epoch: 1}, Seq: 1})
	}
	var names []string
	for _, s := range ss {
		names = append(names, s.node)
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names)
}

// TestNewLifeBeginsWithNothingApplied: a new incarnation's numbers start again.
func TestNewLifeBeginsWithNothingApplied(t *testing.T) {
	var ss sessions
	batch := func(epoch, seq uint64) bool {
		return ss.begin(&protocol.Batch{Origin: protocol.Incarnation{Node: "n1", Epoch: epoch}, Low: 1, Seq: seq})
	}
	require.True(t, batch(1, 3)) // after a gap, so not below the floor
	require.False(t, batch(1, 3))
	require.True(t, batch(2, 3))
	require.True(t, batch(2, 1))
	require.False(t, batch(1, 4))
}

// TestFormerLivesLeave: waiters of a node's previous incarnation leave with the first batch of the next, also from a
// snapshot that is older than what the machine has seen.
func TestFormerLivesLeave(t *testing.T) {
	d := newDriver(t)
	require.Equal(t, protocol.Integer(1), d.doLine("lock-command 1 0 0 lock.acquire k me px 60000"))
	require.Equal(t, protocol.Parked, d.doLine("lock-command 2 7 0 lock.acquire k you px 60000 wait 0"))
	require.Equal(t, protocol.Parked, d.doLine("wait-for-key 8 blpop q 0"))
	snapshot := dump(t, d.m)
	for range 2 {
		for _, ticket := range []uint64{7, 8} {
			require.True(t, d.m.Waits(protocol.Incarnation{Node: "n1", Epoch: 1}, ticket))
		}
		d.seq++
		entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		entry.Add(protocol.Incarnation{Node: "n1", Epoch: 2}, d.seq, d.seq, request(nil, 0, "set", "x", "1"))
		require.NoError(t, d.m.Apply(entry.Bytes(), clientless{}))
		for node, epoch := range map[string]uint64{"n0": 0, "n1": 2, "n2": 0} {
			require.Equal(t, epoch, d.m.Incarnation(node))
		}
		for _, ticket := range []uint64{7, 8} {
			require.False(t, d.m.Waits(protocol.Incarnation{Node: "n1", Epoch: 1}, ticket))
		}
		require.NoError(t, d.m.Restore(bytes.NewReader(snapshot)))
	}
}
