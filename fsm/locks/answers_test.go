package locks

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestGoldenEvents makes random calls to one or two databases, most of them while an event is due. It compares their
// events, costs and snapshots, and the answers of all queries, with the golden file, so that log entries keep their
// meaning. After each call the table must be consistent and an earlier copy unchanged. At the end the table must be
// empty. The flag -rewrite rewrites the file.
func TestGoldenEvents(t *testing.T) {
	var got strings.Builder
	for seed := range uint64(300) {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 13)), table: New(), dbs: 1 + int(seed%2)}
		sum, now := sha256.New(), int64(1000)
		for n := range 150 {
			if c.r.IntN(4) == 0 {
				now += c.r.Int64N(80)
			}
			c.table.Begin(now, c.r.IntN(4)*c.r.IntN(4)*ChangeUnits)
			if c.r.IntN(2) == 0 {
				c.table.Sweep()
			}
			kept := c.table
			var before []byte
			if n%4 == 0 {
				kept = kept.Copy()
				before = saved(kept)
			}
			c.step()
			c.rare(sum)
			require.NoError(t, c.table.Verify())
			if before != nil {
				require.Equal(t, before, saved(kept))
				require.NoError(t, kept.Verify())
			}
			fmt.Fprintln(sum, c.table.BudgetLeft())
			for _, e := range c.table.TakeEvents() {
				fmt.Fprintln(sum, line(&e), e.DB, e.Key)
			}
			if n%10 == 9 {
				sum.Write(saved(c.table))
				c.tellAll(t, sum, now)
				c.tellAll(t, sum, now+30)
			}
			if n%40 == 39 {
				c.table = reloaded(t, c.table)
			}
		}
		fmt.Fprintf(&got, "%d %x\n", seed, sum.Sum(nil)[:8])
		drain(t, c.table, now)
	}
	require.Equal(t, protocoltest.Golden(t, "testdata/golden/events.txt", got.String()), got.String())
}

// rare makes a random call of a kind that chaos does not make, or a rare combination of calls.
func (c *chaos) rare(w io.Writer) {
	t := c.table
	say := func(values ...any) { fmt.Fprintln(w, values...) }
	switch c.r.IntN(24) {
	case 0:
		say(t.ReleaseAll(c.db(), []string{c.key(), c.key()}, c.owner()))
	case 1:
		say(t.ReturnGrant(c.db(), c.key(), c.owner(), t.Stats().Fences-c.r.Uint64N(min(4, 1+t.Stats().Fences)), c.client()))
	case 2:
		t.EndNodeWaitsBefore(waits.Name{Origin: c.client().Origin, Ticket: c.r.Uint64N(c.ticket + 1)})
	case 3:
		t.Settle(c.db(), c.key())
	case 4:
		say(t.RaiseFences(t.Stats().Fences + c.r.Uint64N(3)))
	case 5:
		say(t.RemoveWaiter(waits.Name{Origin: c.client().Origin, Ticket: c.r.Uint64N(c.ticket + 1)}, protocol.LeaveGone))
	case 6:
		say(t.RemoveWaiter(waits.Name{Origin: c.client().Origin, Ticket: c.r.Uint64N(c.ticket + 1)}, protocol.LeaveError))
	case 7, 8: // waiters of sessions
		for range 3 {
			r := c.request()
			r.Keys, r.Mode, r.Waits = r.Keys[:1], Exclusive, true
			say(t.Acquire(r))
		}
	case 9: // a delay for ended holds
		say(t.Break(&Break{DB: c.db(), Key: c.key(), OverridesDelay: true, DelayMillis: 30, Reason: Broken, CauseID: 7}))
	case 10, 11, 12: // many owners
		r := c.request()
		r.Keys, r.Mode, r.Session, r.LeaseMillis = r.Keys[:1], Shared, c.id(), 20
		for i := range 4 {
			each := *r
			each.Owner = fmt.Sprint("o", i)
			say(t.Acquire(&each))
		}
	}
}

// tellAll writes the answers of all queries at the time now.
func (c *chaos) tellAll(t *testing.T, w io.Writer, now int64) {
	table := c.table
	say := func(values ...any) { fmt.Fprintln(w, values...) }
	say(table.Stats(), table.LastAccount(), table.WaitingIncarnations(), table.LiveLocks(), table.LongestLease(),
		table.IsFlushing(), table.HasAnyDue(now))
	say(table.NextDue())
	say(table.HasLocks(0))
	for _, key := range []string{"a", "b", "c", "d"} {
		say(table.Has(0, key), table.HasOrFlushed(0, key), table.Holders(0, key), table.HoldersAndWaiters(0, key),
			table.Usage(0, key), table.HasDue(0, key, now))
		say(table.LeaseLeftMillis(0, key, now))
		for _, most := range []int{1, 3, 100} {
			if info := table.Info(0, key, now, most); info != nil {
				say(*info)
			}
		}
		for i := range 6 {
			owner := fmt.Sprint("o", i)
			say(table.FenceOf(0, key, owner, now), table.IsBlocked(asks(owner, key), now))
			shared := asks(owner, key, "a")
			shared.Mode = Mode(i % 2)
			say(table.IsBlocked(shared, now))
		}
	}
	for _, q := range []Query{
		{Count: 100, MaxRows: 9},
		{Count: 2, MaxRows: 1},
		{Count: 1, MaxRows: 2, Held: true},
		{Count: 1, MaxRows: 2, Waiting: true},
		{Count: 3, MaxRows: 9, ByOwner: true, Owner: "o1"},
		{Count: 3, MaxRows: 9, Match: func(key string) bool { return key > "b" }},
		{Count: 1, MaxRows: 9, Session: 1},
		{Count: 2, MaxRows: 9, Session: slices.Max(append(c.sessions, 1))},
		{Count: 1, MaxRows: 9, Session: slices.Min(append(c.sessions, 1<<30)), Held: true},
		{Count: 1, MaxRows: 9, Session: slices.Max(append(c.sessions, 1)), Waiting: true},
		{Count: 2, MaxRows: 9, Session: slices.Max(append(c.sessions, 1)), ByOwner: true, Owner: "o2"},
	} {
		for range 50 {
			rows, next, looked := table.List(&q, now)
			say(rows, next, looked)
			if q.Cursor = next; next == 0 {
				break
			}
		}
		require.Zero(t, q.Cursor, "a list has an end: %+v", q)
	}
	for cursor := uint64(0); ; {
		rows, next, _ := table.Sessions("", cursor, 2, now)
		say(rows, next)
		for _, row := range rows {
			say(table.SessionsOf(row.Client), *table.Session(row.ID, now))
		}
		if cursor = next; next == 0 {
			break
		}
	}
	for _, node := range []string{"n0", "n1"} {
		for ticket := max(c.ticket, 4) - 4; ticket <= c.ticket; ticket++ {
			name := waits.Name{Origin: protocol.Incarnation{Node: node, Epoch: 1 + ticket%2}, Ticket: ticket}
			say(table.IsWaiting(name), table.QueuesOf(name))
		}
	}
	var queues []string
	table.EachQueue(func(key string, waiters int) { queues = append(queues, fmt.Sprint(key, waiters)) })
	slices.Sort(queues)
	say(queues)
}
