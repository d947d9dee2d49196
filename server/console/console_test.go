package console

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/api"
)

// state is a state machine with a single client.
type state struct {
	t    testing.TB
	m    fsm.Machine
	seq  uint64
	now  int64
	conn int64
}

func newState(t testing.TB) *state { return &state{t: t, m: fsm.New(), now: 1000, conn: 7} }

const wallOffset = 1_700_000_000_000

var origin = protocol.Incarnation{Node: "n1@abc", Epoch: 1}

type sink struct{ replies []protocol.Value }

func (*sink) Wanted(protocol.Incarnation, uint64) bool { return true }
func (s *sink) Done(_ protocol.Incarnation, _ uint64, replies []protocol.Value, _ bool) {
	s.replies = append(s.replies, replies...)
}
func (*sink) Events([]event.Event) {}

// append appends a command for native locks to a batch.
func (s *state) append(body []byte, db int, words ...string) []byte {
	head := protocol.Head{DB: db, Lock: true, Conn: s.conn, Ticket: s.seq + 1}
	return protocol.AppendRequest(body, head, words[0], protocoltest.Args(words[1:]))
}

// apply applies a batch at the present time.
func (s *state) apply(body []byte) {
	s.t.Helper()
	s.seq++
	entry := protocol.NewEntry(nil, protocol.EntryVersion, s.now, wallOffset, protocol.EntryLimits{})
	entry.Add(origin, s.seq, s.seq, body)
	var got sink
	require.NoError(s.t, s.m.Apply(entry.Bytes(), &got))
	for _, v := range got.replies {
		require.False(s.t, v.IsError(), v.Str)
	}
}

func (s *state) do(db int, words ...string) { s.t.Helper(); s.apply(s.append(nil, db, words...)) }

// passes advances the time.
func (s *state) passes(d time.Duration) {
	s.now += d.Milliseconds()
	s.apply(protocol.AppendRequest(nil, protocol.Head{}, "lock.cancel", [][]byte{[]byte("none"), []byte("none")}))
}

// acquire requests a lock for an owner, which waits if the lock is held.
func (s *state) acquire(db int, key, owner string, more ...string) {
	s.t.Helper()
	s.do(db, append([]string{"lock.acquire", key, owner, "PX", "3600000", "WAIT", "3600000"}, more...)...)
}

func (s *state) console() *Console {
	return New(Config{Node: "n1", Machine: func() fsm.Machine { return s.m }, Status: func() protocol.Value {
		return protocol.Map()
	}})
}

func all(sort string) Query { return Query{DB: -1, Sort: sort, Limit: MaxLimit} }

func keys(doc api.Locks) (names []string) {
	for _, l := range doc.Locks {
		names = append(names, l.Key)
	}
	return names
}

// TestLocks shows that Locks returns locks in the requested order, filtered and limited, with sums over all that match.
func TestLocks(t *testing.T) {
	s := newState(t)
	s.acquire(0, "old", "a")
	s.passes(time.Minute)
	s.acquire(3, "mid*dle", "a", "SHARED")
	s.acquire(3, "mid*dle", "b", "SHARED")
	s.passes(time.Minute)
	s.acquire(0, "new", "a")
	for i := range 15 {
		s.acquire(0, "new", fmt.Sprint("w", i))
	}
	s.acquire(0, "old", "w")
	c := s.console()
	ask := func(q Query) api.Locks {
		t.Helper()
		doc, err := c.Locks(t.Context(), q)
		require.NoError(t, err)
		return doc
	}

	doc := ask(all(Held))
	require.Equal(t, []string{"old", "mid*dle", "new"}, keys(doc))
	require.Equal(t, &api.Sums{Locks: 3, Holders: 4, Waiters: 16, Complete: true}, doc.Sums)
	require.Equal(t, []any{api.Format, "n1", int64(wallOffset + 121_000)}, []any{doc.Format, doc.Node, doc.NowUnixMillis})
	require.EqualValues(t, 120_000, doc.Locks[0].Holders[0].HeldMillis)
	require.Equal(t, 3, doc.Locks[1].DB)
	require.Len(t, doc.Locks[2].Waiters, rowsOfList)
	require.EqualValues(t, 15, doc.Locks[2].WaitersCount)

	require.Equal(t, []string{"new", "old"}, keys(ask(all(Queue))))
	few := ask(Query{DB: -1, Sort: Held, Limit: 1})
	require.Equal(t, []string{"old"}, keys(few))
	require.EqualValues(t, 3, few.Sums.Locks)
	require.Equal(t, []string{"mid*dle"},
		keys(ask(Query{DB: -1, Sort: Held, Limit: 9, Match: EscapePattern("mid*") + "*"})))
	require.Empty(t, ask(Query{DB: -1, Sort: Held, Limit: 9, Match: EscapePattern("m*d") + "*"}).Locks)
	require.Equal(t, []string{"mid*dle"}, keys(ask(Query{DB: 3, Sort: Held, Limit: 9})))
	require.Equal(t, []string{"mid*dle"}, keys(ask(Query{DB: -1, Sort: Held, Limit: 9, Mode: "shared"})))
	require.Len(t, ask(Query{DB: -1, Sort: Held, Limit: 9, Mode: "native"}).Locks, 3)
	require.NotNil(t, ask(Query{DB: 9, Sort: Held, Limit: 9}).Locks, "an empty list is [], not null")
}

// TestLock shows that Lock returns a lock with the session of its holder, and ErrNoLock for a key that is no lock.
func TestLock(t *testing.T) {
	s := newState(t)
	s.do(0, "session.open", "PX", "60000", "CONNECTION", "NAME", "report")
	s.do(2, "lock.acquire", "job", "vm", "SESSION", "1", "NOTE", "why")
	s.acquire(2, "job", "next")
	s.passes(20 * time.Second)
	c := s.console()
	doc, err := c.Lock("job", 2)
	require.NoError(t, err)
	h := doc.Lock.Holders[0]
	left, heard := int64(40_000), int64(20_000)
	require.Equal(t, &api.Session{
		ID: 1, Name: "report", LeaseMillis: 60_000, LeftMillis: &left, Connection: true,
		Holds: 1,
	}, h.Session)
	require.Equal(t, &heard, h.HeardMillis)
	require.Equal(t, &api.Client{Node: "n1", Number: 7}, h.Client)
	require.Equal(t, "next", doc.Lock.Waiters[0].Owner)
	_, err = c.Lock("job", 0)
	require.ErrorIs(t, err, ErrNoLock)
	s.apply(protocol.AppendRequest(nil, protocol.Head{}, "set", [][]byte{[]byte("string"), []byte("v")}))
	_, err = c.Lock("string", 0)
	require.ErrorIs(t, err, ErrNoLock)
}

// TestNoCluster shows which errors a node without a state returns.
func TestNoCluster(t *testing.T) {
	for cluster, want := range map[string]error{"": ErrNoCluster, "c1": ErrNoState} { // a member may be in quarantine
		c := New(Config{Machine: func() fsm.Machine { return nil }, Status: func() protocol.Value {
			return protocol.Fields("cluster-id", protocol.Bulk(cluster))
		}})
		_, err := c.Locks(t.Context(), all(Held))
		require.ErrorIs(t, err, want)
		_, err = c.Lock("k", 0)
		require.ErrorIs(t, err, want)
		_, err = c.History("")
		require.ErrorIs(t, err, want)
	}
}

// TestAdviceIsKept shows that a lock that is lost repeatedly stays among the groups of losses, even if many others were
// lost later.
func TestAdviceIsKept(t *testing.T) {
	s := newState(t)
	lose := func(key string) {
		s.do(0, "lock.acquire", key, "x", "PX", "10")
		s.passes(20 * time.Millisecond)
	}
	for range 10 {
		lose("flaps")
	}
	for i := range lossesOfHistory {
		lose(fmt.Sprint("later", i))
	}
	doc, err := s.console().History("")
	require.NoError(t, err)
	require.Len(t, doc.LossGroups, lossesOfHistory)
	require.Equal(t, fmt.Sprint("later", lossesOfHistory-1), doc.LossGroups[0].Last.Key, "the newest first")
	last := doc.LossGroups[lossesOfHistory-1]
	require.Equal(t, "flaps", last.Last.Key)
	require.Contains(t, last.Advice, "lost 10 times")
}

// TestClientsThatLeave shows that a holder is reported as gone if its connection has ended and it still has the lock,
// and not if it has released the lock since the lock was read.
func TestClientsThatLeave(t *testing.T) {
	for _, stays := range []bool{true, false} {
		for name, look := range map[string]func(c *Console) (api.Lock, error){
			"one": func(c *Console) (api.Lock, error) {
				doc, err := c.Lock("k", 3)
				return doc.Lock, err
			},
			"list": func(c *Console) (api.Lock, error) {
				doc, err := c.Locks(t.Context(), all(Held))
				return doc.Locks[0], err
			},
			"page": func(c *Console) (api.Lock, error) {
				doc, err := c.Page(Query{DB: 3, Limit: 5}, "0")
				return doc.Locks[0], err
			},
		} {
			s := newState(t)
			s.acquire(3, "k", "x")
			c := s.console()
			c.config.AddClients = func(_ context.Context, v protocol.Value) protocol.Value {
				row := v
				if v.Kind == protocol.KindArray {
					row = v.Elems[1].Elems[0]
				}
				holder := &field(row, "holders").Elems[0]
				holder.Elems = append(holder.Elems, protocol.Bulk("client-state"), protocol.Bulk("gone"))
				if !stays {
					s.do(3, "lock.release", "k", "x")
					s.acquire(3, "k", "x") // another hold of the same owner
				}
				return v
			}
			l, err := look(c)
			require.NoError(t, err)
			require.Equal(t, stays, l.Holders[0].Client.Gone, "%s, stays: %v", name, stays)
		}
	}
}

// watched is a machine that records its reads.
type watched struct {
	fsm.Machine
	before func()
	mu     sync.Mutex
	most   int // ranks in a reply
	crowd  int // holders and waiters of a lock
	reads  int
}

func (w *watched) Read(body string, count int, now, offset int64, a fsm.ReadClass) ([]protocol.Value, string, bool,
	error,
) {
	if w.before != nil {
		w.before()
	}
	replies, rest, due, err := w.Machine.Read(body, count, now, offset, a)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	switch {
	case len(replies) != 1:
	case len(replies[0].Elems) == 2:
		w.most = max(w.most, len(replies[0].Elems[1].Elems)/fsm.RankFields)
	case replies[0].Kind == protocol.KindMap:
		w.crowd = max(w.crowd, rowsIn(replies[0]))
	}
	return replies, rest, due, err
}

func (s *state) watch() *watched {
	w := &watched{Machine: s.m}
	s.m = w
	return w
}

// TestManyLocks shows that all of 100,000 locks are counted, that the state is read in short pages, and that the answer
// has the requested length.
func TestManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // however slow the machine
		s := newState(t)
		const many = 100_000
		for i := 0; i < many; {
			var body []byte
			for range 1000 {
				body = s.append(body, 0, "lock.acquire", "shard:"+strconv.Itoa(i), "w", "PX", "3600000")
				i++
			}
			s.apply(body)
		}
		s.passes(time.Second)
		w := s.watch()
		c := s.console()
		doc, err := c.Locks(t.Context(), Query{DB: -1, Sort: Held, Limit: 50})
		require.NoError(t, err)
		require.Len(t, doc.Locks, 50)
		require.EqualValues(t, many, doc.Sums.Locks)
		require.LessOrEqual(t, w.most, maxScannedLocks+5)
		require.Greater(t, w.reads, many/maxScannedLocks)
		require.Equal(t, "shard:0", doc.Locks[0].Key, "the oldest, then by name")
		require.Equal(t, "shard:1", doc.Locks[1].Key)
		require.Equal(t, "shard:10", doc.Locks[2].Key)
	})
}

// TestCrowdedLocks shows that of a lock with many waiters only a few are read.
func TestCrowdedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // however slow the machine
		s := newState(t)
		const locks, waiters = 250, 100
		for i := range locks {
			var body []byte
			for w := range waiters + 1 {
				body = protocol.AppendRequest(body, protocol.Head{Lock: true, Conn: 7, Ticket: uint64(1 + i*1000 + w)}, "lock.acquire",
					[][]byte{
						[]byte(fmt.Sprint("k", i)), []byte(fmt.Sprint(w)), []byte("PX"), []byte("3600000"), []byte("WAIT"),
						[]byte("0"),
					})
			}
			s.apply(body)
		}
		w := s.watch()
		doc, err := s.console().Locks(t.Context(), all(Queue))
		require.NoError(t, err)
		require.Equal(t, &api.Sums{Locks: locks, Holders: locks, Waiters: locks * waiters, Complete: true}, doc.Sums)
		require.Equal(t, 1+rowsOfList, w.crowd)
		require.Len(t, doc.Locks, MaxLimit)
	})
}

// TestSurveysAreShared shows that equal queries share a survey, that one survey runs at a time, and that the next one
// begins only after restFactor times its duration.
func TestSurveysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		s.acquire(0, "k", "a")
		w := s.watch()
		var at, most atomic.Int32
		w.before = func() {
			most.Store(max(most.Load(), at.Add(1)))
			time.Sleep(160 * time.Millisecond)
			at.Add(-1)
		}
		c := s.console()
		var asked sync.WaitGroup
		for i := range 50 {
			asked.Go(func() {
				_, err := c.Locks(t.Context(), Query{DB: -1, Sort: []string{Held, Queue}[i%2], Limit: 1 + i})
				require.NoError(t, err)
			})
			asked.Go(func() {
				_, err := c.Locks(t.Context(), Query{DB: -1, Sort: Held, Limit: 1, Match: "k*"})
				require.NoError(t, err)
			})
		}
		asked.Wait()
		const survey = 1 // reads
		require.Equal(t, 2*(survey+1), w.reads, "each shows its lock")
		require.EqualValues(t, 1, most.Load())

		alone := Query{DB: -1, Sort: Held, Limit: 1, Mode: "shared"}
		for _, wait := range []time.Duration{0, restFactor*160*time.Millisecond - time.Millisecond} {
			time.Sleep(wait)
			_, err := c.Locks(t.Context(), alone)
			require.NoError(t, err)
			require.Equal(t, 3*survey+2, w.reads, "still fresh after %v", wait)
		}
		time.Sleep(2 * time.Millisecond)
		_, err := c.Locks(t.Context(), alone)
		require.NoError(t, err)
		require.Equal(t, 4*survey+2, w.reads)
	})
}

// TestSurveysAreBounded shows that a survey that takes too long ends with a partial result, that a query waits no
// longer than its context, and that at most maxSurveys results are kept.
func TestSurveysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		for i := range 6 * maxScannedLocks {
			s.do(0, "lock.acquire", strconv.Itoa(i), "w", "PX", "3600000")
		}
		w := s.watch()
		w.before = func() { time.Sleep(surveyWithin/4 + time.Millisecond) }
		c := s.console()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Locks(ctx, all(Held))
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, time.Second, time.Since(began))
		doc, err := c.Locks(t.Context(), all(Held))
		require.NoError(t, err)
		require.False(t, doc.Sums.Complete)
		require.Less(t, doc.Sums.Locks, int64(6*maxScannedLocks))
		require.Less(t, w.reads, 10)
		require.NotEmpty(t, doc.Locks)
		require.Less(t, time.Since(began), 3*surveyWithin)

		w.before = nil
		for i := range 10 * maxSurveys {
			_, err := c.Locks(t.Context(), Query{DB: -1, Match: strconv.Itoa(i), Sort: Held, Limit: 1})
			require.NoError(t, err)
		}
		require.LessOrEqual(t, len(c.surveys), maxSurveys)
	})
}

// TestHour shows that each step has what was counted in it, that steps before the node's start are not marked as
// counted, and that one hour is kept.
func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		c := s.console()
		time.Sleep(30 * time.Second) // the bubble's time begins at a full minute
		ctx, cancel := context.WithCancel(t.Context())
		var ran sync.WaitGroup
		ran.Go(func() { c.Run(ctx) })
		synctest.Wait()
		s.acquire(0, "a", "x")
		time.Sleep(90 * time.Second) // into the third minute
		synctest.Wait()
		s.do(0, "lock.acquire", "b", "x", "PX", "1000")
		s.acquire(0, "b", "y")
		s.apply(protocol.AppendRequest(nil, protocol.Head{}, "set", [][]byte{
			[]byte("stock"), []byte("t"), []byte("NX"), []byte("PX"),
			[]byte("1000"),
		}))
		s.passes(2 * time.Second) // x loses b, y gets it, and the stock lock expires
		doc, err := c.History("")
		require.NoError(t, err)
		require.EqualValues(t, 60_000, doc.StepMillis)
		var lost []string
		for _, l := range doc.Losses {
			lost = append(lost, l.Kind+" "+l.Key+" "+l.Owner+" "+l.Reason)
		}
		require.Equal(t, []string{"native b x expired", "stock stock t expired"}, lost, "the newest first")
		require.Len(t, doc.LossGroups, 2)
		for i, g := range doc.LossGroups {
			require.Equal(t, doc.Losses[i], g.Last)
			require.EqualValues(t, 1, g.LastMinute)
		}
		require.Len(t, doc.Steps, 60)
		last := doc.Steps[57:]
		require.Equal(t, api.Counts{Grants: 1}, last[0].Counts)
		require.Equal(t, api.Counts{}, last[1].Counts)
		require.Equal(t, api.Counts{Grants: 3, Waits: 1, Lost: 2}, last[2].Counts)
		require.Equal(t, []bool{false, false, true, true}, []bool{
			doc.Steps[56].Counted, last[0].Counted, last[1].Counted,
			last[2].Counted,
		})
		require.Equal(t, doc.NowUnixMillis, last[2].StartUnixMillis)

		time.Sleep(57 * time.Minute)
		synctest.Wait()
		doc, err = c.History("")
		require.NoError(t, err)
		require.Equal(t, last[0].Counts, doc.Steps[0].Counts, "still within the hour")
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		doc, err = c.History("")
		require.NoError(t, err)
		for _, step := range doc.Steps {
			require.True(t, step.Counted)
			require.Equal(t, api.Counts{}, step.Counts)
		}
		require.LessOrEqual(t, len(c.hour.notes), steps+1)
		cancel()
		ran.Wait()
	})
}

// TestStockLocks shows that locks that clients acquire with Redis's own commands are listed with the others, with their
// leases.
func TestStockLocks(t *testing.T) {
	s := newState(t)
	s.apply(protocol.AppendRequest(nil, protocol.Head{DB: 5, Conn: 42}, "set", [][]byte{
		[]byte("stock"), []byte("token"), []byte("NX"),
		[]byte("PX"), []byte("60000"),
	}))
	s.apply(protocol.AppendRequest(nil, protocol.Head{DB: 5}, "set", [][]byte{[]byte("cache"), []byte("v"), []byte("PX"), []byte("60000")}))
	s.passes(10 * time.Second)
	s.acquire(0, "native", "a")
	s.apply(protocol.AppendRequest(nil, protocol.Head{DB: 5}, "pexpire", [][]byte{[]byte("stock"), []byte("30000")}))
	s.passes(5 * time.Second)
	for range 2 {
		for conn := range uint64(3) {
			s.apply(protocol.AppendRequest(nil, protocol.Head{DB: 5, Conn: int64(50 + conn)}, "set", [][]byte{
				[]byte("stock"), fmt.Append(nil, conn),
				[]byte("NX"), []byte("PX"), []byte("60000"),
			}))
		}
	}
	var told protocol.Value
	polled := func(db int, key string, v protocol.Value) {
		row := v
		if key == "" && len(v.Elems[1].Elems) == 1 && db == 5 {
			row = v.Elems[1].Elems[0]
		} else if key != "stock" {
			return
		}
		for i := range row.Elems {
			if row.Elems[i].Str == "waiters-count" {
				row.Elems[i+1] = protocol.Integer(3)
			}
		}
	}
	c := New(Config{
		Node: "n1", Machine: func() fsm.Machine { return s.m }, AddPolls: polled,
		AddClients: func(_ context.Context, v protocol.Value) protocol.Value {
			told = v
			return v
		},
	})
	doc, err := c.Locks(t.Context(), all(Held))
	require.NoError(t, err)
	require.Equal(t, []string{"stock", "native"}, keys(doc))
	require.Equal(t, &api.Sums{Locks: 2, Stock: 1, Holders: 2, Waiters: 3, Complete: true}, doc.Sums)
	require.EqualValues(t, 3, doc.Locks[0].WaitersCount)
	require.Len(t, told.Elems[1].Elems, 2, "the nodes are asked about the clients of each lock once")
	left, renewals, heard := int64(25_000), int64(1), int64(5_000)
	want := api.Hold{
		Owner: "token", Mode: "stock", Holds: 1, LeaseMillis: 30_000, LeaseLeftMillis: &left, Renewals: &renewals,
		HeardMillis:     &heard,
		SinceUnixMillis: wallOffset + 1000, HeldMillis: 15_000, Client: &api.Client{Node: "n1", Number: 42},
	}
	require.Equal(t, want, doc.Locks[0].Holders[0])
	require.Equal(t, []any{5, "stock"}, []any{doc.Locks[0].DB, doc.Locks[0].Mode})
	one, err := c.Lock("stock", 5)
	require.NoError(t, err)
	require.Equal(t, want, one.Lock.Holders[0])
	require.Equal(t, "string", one.Lock.Type)
	require.EqualValues(t, 3, one.Lock.WaitersCount)
	for mode, names := range map[string][]string{"stock": {"stock"}, "native": {"native"}} {
		doc, err := c.Locks(t.Context(), Query{DB: -1, Sort: Held, Limit: 9, Mode: mode})
		require.NoError(t, err)
		require.Equal(t, names, keys(doc))
	}
}

// TestHeard shows that the time since a client was last heard of is that since its last command or its last renewal. A
// renewal that the node makes for its client does not count.
func TestHeard(t *testing.T) {
	n := func(millis int64) *int64 { return &millis }
	for name, tc := range map[string]struct {
		hold api.Hold
		want *int64
	}{
		"nothing known": {api.Hold{}, nil},
		"a lease":       {api.Hold{LeaseMillis: 9, LeaseLeftMillis: n(4)}, n(5)},
		"a later command": {
			api.Hold{LeaseMillis: 9, LeaseLeftMillis: n(4), Client: &api.Client{IdleMillis: n(2)}},
			n(2),
		},
		"an earlier command": {
			api.Hold{LeaseMillis: 9, LeaseLeftMillis: n(4), Client: &api.Client{IdleMillis: n(7)}},
			n(5),
		},
		"a client that is gone": {api.Hold{LeaseMillis: 9, LeaseLeftMillis: n(4), Client: &api.Client{Gone: true}}, n(5)},
		"a session":             {api.Hold{Session: &api.Session{LeaseMillis: 9, LeftMillis: n(4)}}, n(5)},
		"the session of a client": {api.Hold{
			Session: &api.Session{LeaseMillis: 9, LeftMillis: n(9), Connection: true},
			Client:  &api.Client{IdleMillis: n(7)},
		}, n(7)},
	} {
		require.Equal(t, tc.want, lastRenewal(&tc.hold), name)
	}
}

// TestPages shows that a cursor visits each lock of the requested databases, modes and patterns once, and that a list
// that omits locks says so.
func TestPages(t *testing.T) {
	s := newState(t)
	for i := range 230 {
		s.do(i%3, "lock.acquire", fmt.Sprint("n", i), "x", "PX", "60000")
		s.apply(protocol.AppendRequest(nil, protocol.Head{DB: i % 2}, "set", [][]byte{
			fmt.Append(nil, "s", i), []byte("t"), []byte("NX"),
			[]byte("PX"), []byte("60000"),
		}))
	}
	for i := range 20 {
		s.do(5, "lock.acquire", "shared", fmt.Sprint(i), "PX", "60000", "SHARED")
	}
	c := s.console()
	all := func(q Query) int {
		t.Helper()
		seen := make(map[string]bool)
		for cursor := "0"; cursor != ""; {
			doc, err := c.Page(q, cursor)
			require.NoError(t, err)
			require.LessOrEqual(t, len(doc.Locks), q.Limit)
			require.Nil(t, doc.Sums)
			for _, l := range doc.Locks {
				require.LessOrEqual(t, len(l.Holders), rowsOfList)
				name := fmt.Sprint(l.DB, l.Mode, l.Key)
				require.False(t, seen[name], name)
				seen[name] = true
			}
			cursor = doc.NextCursor
		}
		return len(seen)
	}
	require.Equal(t, 461, all(Query{DB: -1, Limit: 7}))
	require.Equal(t, 461, all(Query{DB: -1, Limit: MaxLimit}))
	require.Equal(t, 231, all(Query{DB: -1, Limit: 50, Mode: "native"}))
	require.Equal(t, 115, all(Query{DB: 1, Limit: 50, Mode: "stock"}))
	require.Equal(t, 111, all(Query{DB: -1, Limit: 50, Mode: "native", Match: "n1*"}))
	for _, q := range []Query{
		{DB: -1, Limit: 200, Sort: Held},
		{DB: 5, Limit: 1, Sort: Held},
		{DB: -1, Limit: 1, Sort: Queue},
	} {
		doc, err := c.Locks(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, q.DB < 0 && q.Sort == Held, doc.Truncated)
		require.Empty(t, doc.NextCursor)
	}
}

// TestLocksThatGo shows that a lock that is released between the survey and the document is omitted, but counted.
func TestLocksThatGo(t *testing.T) {
	s := newState(t)
	s.acquire(0, "kept", "x")
	s.acquire(0, "gone", "x")
	w := s.watch()
	reads := 0
	w.before = func() {
		if reads++; reads == 2 { // after the survey
			s.do(0, "lock.release", "gone", "x")
		}
	}
	doc, err := s.console().Locks(t.Context(), all(Held))
	require.NoError(t, err)
	require.Equal(t, []string{"kept"}, keys(doc))
	require.EqualValues(t, 2, doc.Sums.Locks)
}
