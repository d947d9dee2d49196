package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// TestRollBack runs random commands as a transaction and undoes them. The commands include both kinds of locks, scripts
// with savepoints of their own, FLUSHALL, SWAPDB, SCRIPT FLUSH, and ended keys not yet swept. The state must not differ
// in a byte.
func TestRollBack(t *testing.T) {
	for seed := range int64(100) {
		g := newGenerator(seed, "")
		words := newLog(seed)
		d := newDriver(t)
		if seed%20 == 0 {
			d.fill("dead", sweepLimit+5, 100)
		}
		for range 30 {
			d.db = g.rng.Intn(3)
			d.do(g.next()...)
			if g.rng.Intn(3) == 0 {
				d.apply(words.lockRequest(nil, d.db))
				d.apply(words.stockRequest(nil, d.db))
			}
		}
		d.advance(100)
		before := dump(t, d.m)
		versions := d.m.st.Versions

		c := &d.m.call
		c.use(d.m.st, d.m.ops)
		c.NowMillis = d.nowMillis
		c.Ceiling = boundless
		from := c.beginSavepoint()
		copies := 1 // a savepoint and a rollback allow one more
		some := func(most int) {
			for range 1 + g.rng.Intn(most) {
				var r protocol.Request
				body, db := []byte(nil), g.rng.Intn(3)
				switch g.rng.Intn(15) {
				case 0, 1, 2, 3:
					body = words.lockRequest(nil, db)
				case 4, 5, 6, 7:
					body = words.stockRequest(nil, db)
				case 8:
					body = request(nil, db, "set-notifications", "KEA")
				case 9:
					body = request(nil, db, "swapdb", "8", "9") // unless a lock prevents it
				default:
					body = request(nil, db, g.next()...)
				}
				_, err := protocol.NextRequest(string(body), &r)
				require.NoError(t, err)
				c.begin(&r, 1)
				c.run()
			}
		}
		for range 1 + g.rng.Intn(8) {
			copies++
			beforeInner := withoutScripts(t, d.m)
			inner := c.beginSavepoint() // for a script
			some(5)
			if g.rng.Intn(2) == 0 {
				copies++
				c.undoTo(&inner)
				require.Equal(t, beforeInner, withoutScripts(t, d.m), "seed %d", seed)
			} else {
				c.releaseSavepoint(&inner)
			}
			some(5)
			ofLocks := slices.Clone(c.journal.Changes)
			ofLocks = slices.DeleteFunc(ofLocks, func(ch command.Change) bool { return ch.Locks == nil })
			require.LessOrEqual(t, len(ofLocks), copies, "the lock table")
			require.LessOrEqual(t, len(c.journal.histories), copies, "the history")
		}
		c.undoTo(&from)

		require.Equal(t, before, dump(t, d.m), "seed %d", seed)
		require.Equal(t, versions, d.m.st.Versions)
		require.Nil(t, c.Undo)
		require.Empty(t, c.journal.Changes)
		require.NoError(t, d.m.st.verify())
		for _, db := range d.m.st.Databases {
			require.NoError(t, db.Verify())
		}
	}
}

// withoutScripts returns a machine's snapshot without scripts, since the script cache is undone only as a whole. The
// snapshot keeps the generation, so that the transaction continues to change its own copies in place.
func withoutScripts(t testing.TB, m *machine) []byte {
	scripts, generation := m.st.scripts, m.st.Generation
	defer func() { m.st.scripts, m.st.Generation = scripts, generation }()
	m.st.scripts = newScriptCache()
	return dump(t, m)
}

// TestJournalsStaySmall: the journal of a large transaction frees its memory afterwards.
func TestJournalsStaySmall(t *testing.T) {
	d := newDriver(t)
	var queued [][]string
	for i := range keptChanges + 1 {
		queued = append(queued, []string{"set", fmt.Sprint("k", i), "v"})
	}
	require.Len(t, d.exec(nil, queued...).Elems, keptChanges+1)
	require.LessOrEqual(t, cap(d.m.call.journal.Changes), keptChanges)
}

func (d *driver) exec(watches []protocol.Watch, queued ...[]string) protocol.Value {
	var body []byte
	for _, words := range queued {
		body = request(body, d.db, words...)
	}
	replies := d.apply(protocol.AppendTransaction(nil, d.db, watches, body))
	require.Len(d.t, replies, 1)
	return replies[0]
}

func TestTransaction(t *testing.T) {
	d := newDriver(t)
	reply := d.exec(nil, []string{"set", "a", "x"}, []string{"incr", "a"}, []string{"get", "a"}, []string{"ping"})
	require.Equal(t, `[OK (ERR value is not an integer or out of range) "x" PONG]`, line(reply),
		"an error does not stop the others")
	require.Equal(t, protocol.KindArray, d.exec(nil).Kind, "empty")
	reply = d.exec(nil, []string{"exec", "", ""}, []string{"watch", "a"})
	require.Equal(t, "[(ERR MULTI calls can not be nested) (ERR WATCH inside MULTI is not allowed)]", line(reply))
}
