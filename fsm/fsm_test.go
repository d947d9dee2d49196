package fsm

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

var origin = protocol.Incarnation{Node: "n1", Epoch: 1}

func TestClockNeverGoesBack(t *testing.T) {
	d := newDriver(t)
	d.do("SET", "k", "v", "PX", "1000")
	d.advance(900)
	d.nowMillis -= 800 // a new leader with an older time
	require.Equal(t, int64(100), d.do("PTTL", "k").Num)
	stamp, wallOffset := d.m.Clock()
	require.Equal(t, int64(1900), stamp)
	require.Equal(t, d.wallOffset, wallOffset)
}

func TestNextDue(t *testing.T) {
	d := newDriver(t)
	_, ok := d.m.NextDue()
	require.False(t, ok)
	d.do("SET", "a", "v", "PX", "500")
	d.db = 7
	d.do("SET", "b", "v", "PX", "300")
	deadline, ok := d.m.NextDue()
	require.True(t, ok)
	require.Equal(t, int64(1301), deadline)
	d.do("DEL", "b")
	deadline, _ = d.m.NextDue()
	require.Equal(t, int64(1501), deadline)
	d.db = 0
	d.do("PERSIST", "a")
	_, ok = d.m.NextDue()
	require.False(t, ok)
}

// TestReadsAskForTheStamp: a read at a time when a key is due, but not yet by the log's time, must not answer, since a
// write would still see the key.
func TestReadsAskForTheStamp(t *testing.T) {
	d := newDriver(t)
	d.do("SET", "k", "v", "PX", "100")
	d.do("SET", "other", "v", "PX", "5000")
	d.nowMillis += 101
	for _, words := range [][]string{
		{"get", "k"},
		{"exists", "other", "k"},
		{"pttl", "k"},
		{"dbsize"},
		{"keys", "*"},
		{"scan", "0"},
		{"randomkey"},
		{"watch", "k"},
		{"mget", "other", "k"},
	} {
		_, due := d.read(words...)
		require.True(t, due, quote(words))
	}
	for _, words := range [][]string{{"get", "other"}, {"exists", "none"}, {"time"}} {
		_, due := d.read(words...)
		require.False(t, due, quote(words))
	}
	d.db = 1
	_, due := d.read("dbsize")
	require.False(t, due, "another database")
	d.db = 0
	d.advance(0)
	for _, words := range [][]string{{"get", "k"}, {"randomkey"}, {"dbsize"}} {
		_, due := d.read(words...)
		require.False(t, due, quote(words))
	}
}

// Reads compute the remaining TTL from the leader's estimate of the time.
func TestReadsUseTheEstimate(t *testing.T) {
	d := newDriver(t)
	d.do("SET", "k", "v", "PX", "1000")
	d.nowMillis += 400
	reply, due := d.read("pttl", "k")
	require.False(t, due)
	require.Equal(t, int64(600), reply.Num)
	reply, _ = d.read("time")
	require.Equal(t, `["1700000001" "400000"]`, line(reply))
	// An estimate before the log's time is ignored.
	d.nowMillis = 0
	reply, _ = d.read("pttl", "k")
	require.Equal(t, int64(1000), reply.Num)
}

func TestReadRefusesWrites(t *testing.T) {
	m := newMachine()
	for _, words := range [][]string{
		{"set", "a", "b"},
		{"eval", "return 1", "0"},
		{"exec", "", ""},
		{"script|load", "x"},
	} {
		_, _, _, err := m.Read(string(request(nil, 0, words...)), 1, 0, 0, ReadLong)
		require.Error(t, err, quote(words))
	}
	_, _, _, err := m.Read("\xff", 1, 0, 0, ReadLong)
	require.ErrorIs(t, err, protocol.ErrCorruptEntry)
}

func TestBatchesAreAppliedOnce(t *testing.T) {
	m := newMachine()
	entry := func(o protocol.Incarnation, low, seq uint64) []byte {
		w := protocol.NewEntry(nil, protocol.EntryVersion, 1, 0, protocol.EntryLimits{})
		w.Add(o, low, seq, request(nil, 0, "incr", "k"))
		return w.Bytes()
	}
	apply := func(o protocol.Incarnation, low, seq uint64) string {
		var r recorder
		require.NoError(t, m.Apply(entry(o, low, seq), &r))
		if r.skipped > 0 {
			return "skipped"
		}
		return line(r.replies[0])
	}
	require.False(t, m.Applied(origin, 5))
	require.Equal(t, "1", apply(origin, 1, 5))
	require.True(t, m.Applied(origin, 5))
	require.Equal(t, "skipped", apply(origin, 1, 5))
	require.False(t, m.Applied(origin, 4))
	require.Equal(t, "2", apply(origin, 1, 4))
	require.Equal(t, "3", apply(origin, 5, 7))
	require.Equal(t, "skipped", apply(origin, 1, 3), "given up")
	require.Equal(t, "4", apply(origin, 1, 6), "late, but not given up")
	other := protocol.Incarnation{Node: "n2", Epoch: 9}
	require.Equal(t, "5", apply(other, 1, 5))
	reborn := protocol.Incarnation{Node: "n1", Epoch: 2}
	require.False(t, m.Applied(reborn, 5))
	require.Equal(t, "6", apply(reborn, 1, 5))
	require.Equal(t, "skipped", apply(origin, 1, 100), "of a previous incarnation")
	require.Equal(t, "skipped", apply(other, 1, 5))
}

func TestUnwantedBatches(t *testing.T) {
	m := newMachine()
	w := protocol.NewEntry(nil, protocol.EntryVersion, 1, 0, protocol.EntryLimits{})
	body := request(nil, 0, "set", "a", "1")
	body = request(body, 0, "get", "a")
	body = request(body, 0, "nosuch")
	body = protocol.AppendTransaction(body, 0, nil, request(request(nil, 0, "get", "a"), 0, "incr", "a"))
	w.Add(origin, 1, 1, body)
	require.NoError(t, m.Apply(w.Bytes(), clientless{}))
	replies, _, _, err := m.Read(string(request(nil, 0, "get", "a")), 1, 0, 0, ReadLong)
	require.NoError(t, err)
	require.Equal(t, "2", replies[0].Str)
}

// A script's random numbers must not depend on whether a node answers the reads around it.
func TestQuietNodesDrawAlike(t *testing.T) {
	loud, quiet := newDriver(t), newMachine()
	w := func(seq uint64, body []byte) []byte {
		e := protocol.NewEntry(nil, protocol.EntryVersion, 1, 0, protocol.EntryLimits{})
		e.Add(origin, 1, seq, body)
		return e.Bytes()
	}
	for i := range uint64(50) {
		var body []byte
		body = request(body, 0, "set", fmt.Sprint("key", i), "v")
		body = request(body, 0, "randomkey")
		body = request(body, 0, "eval", "redis.call('append', 'drawn', redis.call('randomkey'))", "0")
		queued := request(nil, 0, "randomkey")
		queued = request(queued, 0, "eval", "redis.call('append', 'drawn', redis.call('randomkey'))", "0")
		body = protocol.AppendTransaction(body, 0, nil, queued)
		require.NoError(t, loud.m.Apply(w(i, body), new(recorder)))
		require.NoError(t, quiet.Apply(w(i, body), clientless{}))
	}
	require.Equal(t, loud.m.Hash(), quiet.Hash())
}

func TestCorruptEntries(t *testing.T) {
	good := protocol.NewEntry(nil, protocol.EntryVersion, 1, 0, protocol.EntryLimits{})
	good.Add(origin, 1, 1, request(nil, 0, "set", "a", "1"))
	for n := range len(good.Bytes()) {
		err := newMachine().Apply(good.Bytes()[:n], clientless{})
		if n == 5 {
			require.NoError(t, err, "a bare stamp")
			continue
		}
		require.Error(t, err, "%d bytes", n)
	}
	body := request(nil, 0, "set", "a", "1")
	for n := 1; n < len(body); n++ {
		whole := protocol.NewEntry(nil, protocol.EntryVersion, 1, 0, protocol.EntryLimits{})
		whole.Add(origin, 1, 1, body[:n])
		require.ErrorIs(t, newMachine().Apply(whole.Bytes(), clientless{}), protocol.ErrCorruptEntry, "a body of %d bytes", n)
	}
	newer := append([]byte{protocol.EntryVersion + 1}, good.Bytes()[1:]...)
	require.ErrorContains(t, newMachine().Apply(newer, clientless{}), "newer release")
}

func TestStats(t *testing.T) {
	d := newDriver(t)
	d.do("SET", "a", "1")
	d.do("SET", "b", "1", "PX", "100")
	d.db = 3
	d.do("SET", "c", "1", "PX", "100000")
	s := d.m.Stats()
	require.Equal(t, 2, s.Keys[0])
	require.Equal(t, 1, s.Expires[0])
	require.Equal(t, 1, s.Keys[3])
	require.Equal(t, 1, s.Expires[3])
	d.advance(101)
	s = d.m.Stats()
	require.Equal(t, 1, s.Keys[0])
	require.Zero(t, s.Expires[0])
	require.Equal(t, uint64(1), s.Expired)
}

// TestConcurrentUse runs entries, reads and snapshots concurrently, for the race detector.
func TestConcurrentUse(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 2000, 50)
	other := newMachine()
	empty := dump(t, other)
	now, offset := d.nowMillis, d.wallOffset
	body := request(nil, 0, "get", "k1")
	body = request(body, 0, "keys", "*")
	body = request(body, 0, "scan", "0")
	body = request(body, 0, "randomkey")
	body = request(body, 0, "dbsize")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 30 {
				_, _, _, err := d.m.Read(string(body), 5, now, offset, ReadLong)
				if err != nil {
					t.Error(err)
				}
				tellAll(d.m)
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if _, err := d.m.Snapshot().WriteTo(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 10 {
			d.m.ClassifyLocks([]string{"k*"})
			d.m.Skipped()
			if err := other.Restore(bytes.NewReader(empty)); err != nil {
				t.Error(err)
			}
			tellAll(other)
			if _, err := other.Renew(Renewal{AtMillis: 1}); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 300 {
		tellAll(other)
		d.do("set", fmt.Sprint("k", i), "again", "px", "100")
		d.advance(1)
	}
	wg.Wait()
}

// tellAll queries everything that a machine reports about itself.
func tellAll(m *machine) {
	m.Stats()
	m.LockStats()
	m.LockClasses()
	m.StockWaiters(0, "k1")
	m.NextDue()
	m.Applied(origin, 1)
	m.Incarnation(origin.Node)
	m.Version()
	m.Clock()
	m.Waits(origin, 1)
	m.WaitingIncarnations()
	m.Waiting()
	m.KeptSessions(func(int64, uint64, int64) {})
	m.IsNoop(string(request(nil, 0, "setnx", "k1", "v")), 0)
	m.IsNoop(string(protocol.AppendRequest(nil, protocol.Head{Ticket: 1}, "blpop", [][]byte{[]byte("k1"), []byte("0")})), 0)
	m.Survey(1)
	m.Skipped()
}
