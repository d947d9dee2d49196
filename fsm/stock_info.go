package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// modeStock is the mode of a stock lock in replies.
const modeStock = "stock"

// stockOwners returns the first limit owners of a stock lock as holders for a reply, and the number of all owners. The
// owner in a string is its value. The owners in a hash, a lock of Redisson, are its fields.
func stockOwners(it *keyspace.Item, limit int) (owners []locks.Hold, count int) {
	if it.IsString() {
		return []locks.Hold{{Owner: it.Value(), Count: 1}}, 1
	}
	h, ok := it.Collection().(*collection.Hash)
	if !ok {
		return nil, 0
	}
	count = holders(h)
	h.All(func(name, value string) bool {
		if len(owners) == limit {
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

// holders returns the number of owners in a hash.
func holders(h *collection.Hash) int {
	if _, has := h.Get(modeField); has {
		return h.Len() - 1
	}
	return h.Len()
}

// modeField is a field of the hash of a Redisson read-write lock. It names the mode, and is not an owner.
const modeField = "mode"

// showStock appends the fields of a stock lock to dst, the same fields as for native locks. All owners have the times
// and the client of the lock's mark, since owners have no marks of their own.
func (c *call) showStock(dst []protocol.Value, it *keyspace.Item, q *locks.Query) []protocol.Value {
	m, _ := it.Mark()
	left := int64(-1)
	if it.DeadlineMillis != command.Never {
		left = max(0, it.DeadlineMillis-c.NowMillis)
	}
	client := c.markedBy(&m)
	owners, count := stockOwners(it, q.MaxRows)
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

// stockSize returns an upper bound of the number of owners of a stock lock, in constant time.
func stockSize(it *keyspace.Item) int {
	if v := it.Collection(); v != nil {
		return v.Len()
	}
	return 1
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

// polling returns the number of clients that poll for a stock lock. In a log entry it returns 0: see call.readWatch.
func (c *call) polling(db int, key string) (n int) {
	if c.readWatch == nil || c.readWatch.polls.count == 0 {
		return 0
	}
	for _, w := range c.readWatch.polls.of(db, key) {
		if w.waits(c.st.ClockMillis) {
			n++
		}
	}
	return n
}
