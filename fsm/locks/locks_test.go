package locks

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// TestBackup requires that a restore from a backup leaves no waiters. It leaves no holds and sessions, or gives them
// their full leases. Later fences and ids must be new.
func TestBackup(t *testing.T) {
	for seed := range uint64(20) {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 11)), table: New()}
		now := int64(1000)
		for range 80 {
			now += c.r.Int64N(20)
			c.table.Begin(now, plenty)
			c.table.Sweep()
			c.step()
		}
		c.table.TakeEvents()
		kept, dropped := c.table.Copy(), c.table
		kept.Begin(now, 0)
		before := kept.Stats()
		kept.RaiseCounters(1<<32, 0)
		kept.RenewAll()
		require.NoError(t, kept.Verify())
		after := kept.Stats()
		require.Empty(t, kept.Events())
		require.Zero(t, after.Waiters)
		require.Equal(t, before.Sessions, after.Sessions)
		require.Equal(t, before.Holds, after.Holds)
		require.Equal(t, before.Fences+1<<32, after.Fences)
		require.Zero(t, kept.BudgetLeft())
		for l := range kept.allLocks() {
			for _, h := range l.holds() {
				require.True(t, h.deadline == noDeadline || h.deadline == now+h.lease())
				require.Zero(t, h.client())
			}
		}
		kept.sessionsByID.Scan(func(s *session) bool {
			require.Equal(t, now+s.lease, kept.endOf(s))
			require.Zero(t, s.client())
			return true
		})
		reloaded(t, kept)

		dropped.RemoveAll()
		require.Equal(t, kept.sessionIDs-1<<32, dropped.sessionIDs, "no id is given out again")
		dropped.Begin(now-1, 0)
		dropped.RaiseCounters(1<<32, 0)
		require.NoError(t, dropped.Verify())
		require.Zero(t, dropped.Bytes())
		require.Equal(t, now, dropped.now, "time does not go back")
		require.Greater(t, dropped.mustAcquire(t, asks("a", "k")), before.Fences+1<<32)
	}
}

const plenty = 1 << 20

func at(t *Table, millis int64) *Table {
	t.Begin(millis, plenty)
	return t
}

func client(conn int64) Client { return Client{protocol.Incarnation{Node: "n1", Epoch: 1}, conn} }

// asks returns a request of an owner for locks, with a lease of a second.
func asks(owner string, keys ...string) *Request {
	return &Request{Keys: keys, Owner: owner, LeaseMillis: 1000, Client: client(1)}
}

var tickets uint64

func waiting(r *Request) *Request {
	tickets++
	r.Waits, r.Ticket = true, tickets
	return r
}

func (t *Table) mustAcquire(tt *testing.T, r *Request) uint64 {
	tt.Helper()
	a, err := t.Acquire(r)
	require.NoError(tt, err)
	require.NotZero(tt, a.Fence)
	return a.Fence
}

func (t *Table) mustWait(tt *testing.T, r *Request) {
	tt.Helper()
	a, err := t.Acquire(waiting(r))
	require.NoError(tt, err)
	require.True(tt, a.Waiting)
}

func (t *Table) mustOpen(tt *testing.T, leaseMillis int64) (id uint64) {
	tt.Helper()
	id, err := t.OpenSession(leaseMillis, Client{}, false, "", "", 0)
	require.NoError(tt, err)
	return id
}

func kinds(events []Event) (kinds []EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// TestGrantsShareNoMemory requires that holds, waiters, sessions and NodeEnds share no memory with the log entry of
// their request, since the entry is far larger.
func TestGrantsShareNoMemory(t *testing.T) {
	table := at(New(), 1000)
	given := map[*byte]bool{}
	text := func(s string) string {
		s = strings.Clone(s)
		given[unsafe.StringData(s)] = true
		return s
	}
	ask := func(owner, note string, keys ...string) *Request {
		r := asks(text(owner), keys...)
		for i := range keys {
			keys[i] = text(keys[i])
		}
		r.Client.Origin.Node = text("node of " + owner)
		r.Note, r.Call, r.Reentrant = text(note), text("call "+note), true
		return r
	}
	c := client(1)
	c.Origin.Node = text("node of a session")
	id, err := table.OpenSession(500, c, true, text("name"), "", 0)
	require.NoError(t, err)
	table.mustAcquire(t, ask("owner", "note", "k"))
	table.mustAcquire(t, ask("owner", "another note", "k"))
	for _, keys := range [][]string{{"k"}, {"k", "l"}, {"l", "k"}} {
		table.mustWait(t, ask("waiter", "note", keys...))
	}
	h, w, s := table.find(0, "k").hold, table.waiterOf(table.find(0, "l"), "waiter"), table.session(id)
	ended := waits.Name{Origin: *w.origin, Ticket: w.ticket + 1}
	ended.Origin.Node = text(ended.Origin.Node)
	table.EndNodeWaitsBefore(ended)
	kept := []string{
		h.owner, h.extra.note, h.extra.call, h.origin.Node, w.keys()[0], w.keys()[1], w.owner, w.note, w.call,
		w.origin.Node, s.name, s.origin.Node, table.incarnations[0].origin.Node, table.nodeEnds[0].Origin.Node,
	}
	require.Equal(t, []string{
		"owner", "another note", "call another note", "node of owner", "k", "l", "waiter", "note", "call note",
		"node of waiter", "name", "node of a session", "node of a session", "node of waiter",
	}, kept)
	for _, each := range kept {
		_, shared := given[unsafe.StringData(each)]
		require.False(t, shared, each)
	}
}

// TestCopiesShareNoEvents requires that a copy of a table has no events, and that the events of one table do not
// overwrite those of the other.
func TestCopiesShareNoEvents(t *testing.T) {
	table := at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	table.mustAcquire(t, asks("a", "l"))
	require.Len(t, table.Events(), 4)
	c := table.Copy()
	require.Empty(t, c.Events())
	require.Len(t, table.TakeEvents(), 4)
	c = table.Copy()
	table.mustAcquire(t, asks("b", "m"))
	c.mustAcquire(t, asks("c", "n"))
	for each, owner := range map[*Table]string{table: "b", c: "c"} {
		require.Equal(t, owner, each.Events()[0].Owner)
	}
}
