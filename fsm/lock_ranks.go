package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// Reads that only nodes make, for a list of locks in an order of its own: "lockranks" has what decides a lock's place,
// a tenth of what LOCK.LIST takes; "lockrow" shows a lock that has a place.

// lockReads are the requests.
var lockReads = map[string]op{"lockranks": lockRanksOp, "lockrow": lockRowOp}

// RankFields is the number of values of a lock in a reply to "lockranks": key, database, mode, Unix time of the first
// holder or the largest integer, and how many hold and wait.
const RankFields = 6

// lockRanksOp has the options and the cursors of LOCK.LIST.
func lockRanksOp(c *call) protocol.Value { return c.listLocks(&lockListing{ranks: true}) }

// lockRowOp is LOCK.INFO with so many holders and waiters at most.
func lockRowOp(c *call) protocol.Value {
	if len(c.Args) != 3 {
		return command.ErrArity("lockrow")
	}
	most, ok := protocol.ParseInt(c.Args[2])
	if !ok || most < 1 || most > infoRows {
		return command.ErrNotInteger
	}
	return c.lockInfo(c.Args[1], int(most))
}

// rank adds a lock. Requires: ranks are asked for.
func (l *lockListing) rank(c *call, key string, db int, mode string, sinceMillis int64, holders, waiters int) {
	c.Spend(command.KeyWork)
	since := int64(math.MaxInt64)
	if holders > 0 {
		since = c.ToWall(sinceMillis)
	}
	l.rows = append(l.rows,
		protocol.Bulk(key), protocol.Integer(int64(db)), protocol.Bulk(mode), protocol.Integer(since),
		protocol.Integer(int64(holders)), protocol.Integer(int64(waiters)))
}

func (l *lockListing) rankNative(c *call, info *locks.Info) {
	since := int64(0)
	if len(info.Holds) > 0 {
		since = info.Holds[0].SinceMillis
	}
	l.rank(c, info.Key, info.DB, modeOf(info), since, info.Holders, info.Waiters)
}

func (l *lockListing) rankStock(c *call, it *keyspace.Item, db int) {
	m, _ := it.Mark()
	count := 1
	if h, ok := it.Collection().(*collection.Hash); ok {
		count = holders(h)
	}
	l.rank(c, it.Key(), db, modeStock, m.SinceMillis, count, c.polling(db, it.Key()))
}

// polling is how many clients poll for a stock lock, of a read.
func (c *call) polling(db int, key string) (n int) {
	if c.seen == nil || c.seen.polls.count == 0 {
		return 0
	}
	for _, w := range c.seen.polls.byKey[lockKey{db, key}] {
		if w.waits(c.st.ClockMillis) {
			n++
		}
	}
	return n
}
