package locks

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// stream writes a snapshot as text.
type stream struct{ buf []byte }

func (s *stream) Uint(n uint64) { s.buf = binary.AppendUvarint(s.buf, n) }
func (s *stream) Int(n int64)   { s.buf = binary.AppendVarint(s.buf, n) }
func (s *stream) String(text string) {
	s.Uint(uint64(len(text)))
	s.buf = append(s.buf, text...)
}

func saved(t *Table) []byte {
	var s stream
	t.Save(&s)
	return s.buf
}

// chaos makes random calls to a table.
type chaos struct {
	r        *rand.Rand
	table    *Table
	ticket   uint64
	sessions []uint64
	dbs      int // the number of databases; 0 stands for 1
}

func (c *chaos) db() int {
	if c.dbs == 0 {
		return 0
	}
	return c.r.IntN(c.dbs)
}

func (c *chaos) key() string   { return string(rune('a' + c.r.IntN(4))) }
func (c *chaos) owner() string { return fmt.Sprint("o", c.r.IntN(6)) }
func (c *chaos) client() Client {
	return Client{protocol.Incarnation{Node: fmt.Sprint("n", c.r.IntN(2)), Epoch: 1 + c.r.Uint64N(2)}, 1 + c.r.Int64N(3)}
}

func (c *chaos) id() uint64 {
	if len(c.sessions) == 0 || c.r.IntN(3) > 0 {
		return 0
	}
	return c.sessions[c.r.IntN(len(c.sessions))]
}

func (c *chaos) request() *Request {
	r := &Request{
		Keys: []string{c.key()}, Owner: c.owner(), LeaseMillis: 1 + c.r.Int64N(300), Session: c.id(), Mode: Mode(c.r.IntN(3)),
		Limit: 1 + c.r.Int32N(4), DelayMillis: c.r.Int64N(2) * c.r.Int64N(50), Reentrant: c.r.IntN(2) == 0,
		Waits: c.r.IntN(4) > 0, WaitMillis: c.r.Int64N(2) * (1 + c.r.Int64N(200)),
		GraceMillis: c.r.Int64N(2) * c.r.Int64N(60),
		Client:      c.client(), Notify: c.r.IntN(2) == 0,
		DB: c.db(),
	}
	r.Permits = 1 + c.r.Int32N(r.Limit)
	for range c.r.IntN(4) {
		r.Keys = append(r.Keys, c.key())
	}
	if r.Mode == Permits && len(r.Keys) > 1 {
		r.Mode = Exclusive
	}
	if c.r.IntN(5) > 0 {
		c.ticket++
		r.Ticket = c.ticket
	}
	if c.r.IntN(2) == 0 {
		r.Call, r.Note = fmt.Sprint(c.r.IntN(2)), "note"
	}
	return r
}

func (c *chaos) step() {
	t := c.table
	switch c.r.IntN(24) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		_, _ = t.Acquire(c.request())
	case 8, 9:
		t.Release(c.db(), c.key(), c.owner(), c.r.IntN(2) == 0)
	case 10:
		t.Renew(c.db(), c.key(), c.owner(), 1+c.r.Int64N(300))
	case 11:
		t.Cancel(c.db(), c.key(), c.owner())
	case 12:
		_, _ = t.Downgrade(c.db(), c.key(), c.owner())
	case 13:
		t.Break(&Break{
			DB: c.db(), Key: c.key(), ByOwner: c.r.IntN(2) == 0, Owner: c.owner(), OverridesDelay: c.r.IntN(2) == 0,
			DelayMillis: c.r.Int64N(20), Reason: Broken, CauseID: c.ticket % 5,
		})
	case 14:
		if id, err := t.OpenSession(1+c.r.Int64N(200), c.client(), c.r.IntN(2) == 0, "s", "", 0); err == nil {
			c.sessions = append(c.sessions, id)
			c.sessions = c.sessions[max(0, len(c.sessions)-5):]
		}
	case 15:
		t.KeepAlive(c.id())
	case 16:
		_, _ = t.Attach(c.id(), c.client())
	case 17:
		t.CloseSession(c.id())
	case 18:
		t.KeepNodeAlive(c.client().Origin)
	case 19:
		t.EndSessionsOf(c.client())
	case 20:
		t.RemoveWaiter(waits.Name{Origin: c.client().Origin, Ticket: c.r.Uint64N(c.ticket + 1)}, protocol.LeaveTimeout)
	case 21:
		if c.r.IntN(4) == 0 {
			t.EndNodeWaits("n0", 1+c.r.Uint64N(2))
		}
	case 22:
		if c.r.IntN(4) == 0 {
			t.Flush(c.db(), c.ticket%3)
		}
	case 23:
		t.Settle(c.db(), c.key())
	}
}

// drain advances the time until the table has only waits without a timeout, and their locks.
func drain(t *testing.T, table *Table, now int64) {
	for n := 0; ; n++ {
		require.Less(t, n, 5000, "something is due for ever")
		due, ok := table.NextDue()
		if !ok {
			break
		}
		now = max(now, due)
		table.Begin(now, 2*ChangeUnits)
		table.Sweep()
	}
	var names []waits.Name
	table.waitersByName.Scan(func(w *waiter) bool {
		names = append(names, w.name())
		return true
	})
	require.Empty(t, slices.Clip(names), "who waits is granted when all others are gone")
	require.Zero(t, table.Bytes())
	require.Zero(t, table.Len()+table.sessionsByID.Len()+len(table.incarnations)+len(table.nodeEnds))
	require.Empty(t, table.flushedDatabases)
}
