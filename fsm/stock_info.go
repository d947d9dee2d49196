package fsm

import (
	"cmp"
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// modeStock is the mode of a stock lock in replies.
const modeStock = "stock"

// isStockLock reports whether an item is a stock lock. A key that was taken without a time to live is none until it is
// given one.
func isStockLock(it *keyspace.Item) bool { return it.DeadlineMillis != command.Never && it.IsMarked() }

// stockOwners are the first owners of a stock lock, as holders in a reply: the value of a string, the fields of a hash,
// which are the owners in Redisson's locks. count is how many there are.
func stockOwners(it *keyspace.Item, most int) (owners []locks.Hold, count int) {
	if it.IsString() {
		return []locks.Hold{{Owner: it.Value(), Count: 1}}, 1
	}
	h, ok := it.Collection().(*collection.Hash)
	if !ok {
		return nil, 0
	}
	count = holders(h)
	h.All(func(name, value string) bool {
		if len(owners) == most {
			return false
		}
		if name != modeField {
			times, ok := protocol.ParseInt(value)
			if !ok || times < 1 || times > math.MaxInt32 {
				times = 1
			}
			owners = append(owners, locks.Hold{Owner: name, Count: times})
		}
		return true
	})
	return owners, count
}

// holders is the number of owners of a hash.
func holders(h *collection.Hash) int {
	if _, has := h.Get(modeField); has {
		return h.Len() - 1
	}
	return h.Len()
}

// modeField is the field of Redisson's read-write locks that is no owner.
const modeField = "mode"

// showStock appends the fields of a stock lock, those of native locks. The mark is of the lock, not of an owner.
func (c *call) showStock(dst []protocol.Value, it *keyspace.Item, q *locks.Query) []protocol.Value {
	m, _ := it.Mark()
	left := int64(-1)
	if it.DeadlineMillis != command.Never {
		left = max(0, it.DeadlineMillis-c.NowMillis)
	}
	client := c.markedBy(&m)
	owners, count := stockOwners(it, q.Most)
	holders := []protocol.Value{}
	for i := range owners {
		h := &owners[i]
		if q.ByOwner && h.Owner != q.Owner {
			continue
		}
		h.LeftMillis, h.LeaseMillis, h.SinceMillis, h.Client = left, m.LeaseMillis, m.SinceMillis, client
		holders = append(holders, c.showHolder(h, modeStock, int64(m.Renewals)))
	}
	return append(dst, lockFields(modeStock, count, 0, 0, 0, holders, []protocol.Value{})...)
}

// maxPassedKeys is how many keys a call of LOCK.LIST looks at that are no stock locks.
const maxPassedKeys = 10_000

// listStock lists the stock locks of a database in the order of SCAN. seen is how many locks it looked at; next
// is the cursor to go on from, 0 at the end.
func (l *lockListing) listStock(c *call, db int) (seen int, next uint64) {
	if l.query.Waiting {
		return l.listPolled(c, db)
	}
	if l.query.Cursor >= 1<<53 || c.st.Databases[db].Marks() == 0 {
		return 0, 0
	}
	outer := c.DB
	c.DB = db
	defer func() { c.DB = outer }()
	c.MeetAll()
	passed, last := 0, uint64(0)
	c.Ascend(l.query.Cursor<<command.CursorShift, func(it *keyspace.Item) bool {
		if at := command.Position(it); (seen >= l.query.Count || passed >= maxPassedKeys || c.DueMet) && at != last {
			next = at
			return false
		}
		last = command.Position(it)
		c.SpendScan()
		if !isStockLock(it) {
			passed++
			return c.Fits(0)
		}
		seen++
		switch {
		case !l.match.Match(it.Key()) || !l.hasOwner(it):
		case l.ranks:
			l.rankStock(c, it, db)
		default:
			work := lockWork + c.rows(min(l.query.Most, stockSize(it)))
			if !c.Fits(work) {
				return false
			}
			c.Spend(work)
			l.add(c.showStock(l.head(it.Key(), db), it, &l.query))
		}
		return !l.match.Tired() && c.Fits(0)
	})
	return seen, next
}

// listPolled is listStock for the locks that clients poll for.
func (l *lockListing) listPolled(c *call, db int) (seen int, next uint64) {
	if c.seen == nil {
		return 0, 0
	}
	var polled []*keyspace.Item
	for at, all := range c.seen.polls.byKey { // unordered: sorted below
		if at.db != db || !slices.ContainsFunc(all, func(w poll) bool { return w.waits(c.st.ClockMillis) }) {
			continue
		}
		it := c.st.Databases[db].Find(keyspace.Hash(at.key), at.key)
		if it != nil && !it.Ended(c.NowMillis) && isStockLock(it) && command.Position(it) >= l.query.Cursor && l.hasOwner(it) &&
			l.match.Match(at.key) {
			polled = append(polled, it)
		}
	}
	c.Spend(int64(len(c.seen.polls.byKey)) * command.KeyWork)
	slices.SortFunc(polled, func(a, b *keyspace.Item) int {
		return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Key(), b.Key()))
	})
	last := uint64(0)
	for _, it := range polled {
		if at := command.Position(it); seen >= l.query.Count && at != last {
			return seen, at
		}
		last = command.Position(it)
		seen++
		work := lockWork + c.rows(min(l.query.Most, stockSize(it)))
		if !c.Fits(work) {
			break
		}
		c.Spend(work)
		l.add(c.showStock(l.head(it.Key(), db), it, &l.query))
	}
	return seen, 0
}

// stockSize is the number of owners of a stock lock, at most.
func stockSize(it *keyspace.Item) int {
	if v := it.Collection(); v != nil {
		return v.Len()
	}
	return 1
}

// hasOwner reports whether a stock lock has the owner that is asked for.
func (l *lockListing) hasOwner(it *keyspace.Item) bool {
	return !l.query.ByOwner || holdsStock(it, l.query.Owner)
}

// holdsStock reports whether an owner holds a stock lock.
func holdsStock(it *keyspace.Item, owner string) bool {
	if it.IsString() {
		return it.Value() == owner
	}
	h, ok := it.Collection().(*collection.Hash)
	if !ok {
		return false
	}
	_, has := h.Get(owner)
	return has && owner != modeField
}
