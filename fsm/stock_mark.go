package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// A stock lock is a key that a client takes as a lock by Redis's own commands. Its item has a mark: see
// [keyspace.Mark]. LOCKS.md says which commands make marks.

// versionMarks is the first version of the entry whose stock locks are marked.
const versionMarks = 6

// newMark is the mark of an item that the client of the request makes now.
func (c *call) newMark(deadlineMillis int64) keyspace.Mark {
	m := keyspace.Mark{SinceMillis: c.nowMillis, LeaseMillis: c.leaseUntil(deadlineMillis)}
	if c.conn != 0 {
		m.Incarnation, m.Conn = c.st.incarnations.number(c.origin, c.st.sessions), c.conn
	}
	return m
}

// leaseUntil is the time until a deadline, 0 for never.
func (c *call) leaseUntil(deadlineMillis int64) int64 {
	if deadlineMillis == never {
		return 0
	}
	return max(1, saturatingAdd(deadlineMillis, -c.nowMillis))
}

// claim stores a string on the condition that the key was missing, which is met.
func (c *call) claim(key, value string, deadlineMillis int64) {
	if c.entryVersion < versionMarks {
		c.set(key, value, deadlineMillis)
		return
	}
	c.setMarked(key, value, deadlineMillis, c.newMark(deadlineMillis))
	c.scripts.made.claims++
	if deadlineMillis != never {
		c.watchClaim(key, value)
	}
}

// setMarked is [call.set] with a mark.
func (c *call) setMarked(key, value string, deadlineMillis int64, m keyspace.Mark) {
	c.spend(int64(len(key) + len(value)))
	c.store(c.db, keyspace.NewMarked(c.hashOf(key), key, value, deadlineMillis, m))
}

// setOrMark stores the string of SET. old is the former item if SET had to look, else nil.
func (c *call) setOrMark(key, value string, deadlineMillis int64, o *options, old *keyspace.Item) {
	if c.entryVersion >= versionMarks && o.unit != expiryNone || o.condition == ifMissing {
		if old == nil && o.condition != ifMissing {
			old = c.findIn(c.db, key)
		}
		switch {
		case old == nil && (o.condition == ifMissing || c.scripts.claimsOnly(c)):
			c.claim(key, value, deadlineMillis)
			return
		case old != nil && old.IsMarked() && old.IsString() && old.Value() == value:
			m, _ := old.Mark()
			c.setMarked(key, value, deadlineMillis, c.renewed(m, deadlineMillis))
			return
		}
	}
	c.set(key, value, deadlineMillis)
}

// renewed is the mark of an item that is given another deadline. The first lease of a key that was taken without
// one is no renewal.
func (c *call) renewed(m keyspace.Mark, deadlineMillis int64) keyspace.Mark {
	if m.LeaseMillis != 0 {
		m.Renewals++
	}
	m.LeaseMillis = c.leaseUntil(deadlineMillis)
	return m
}

// remarked is an item that is about to get another deadline, with the mark that it has then.
func (c *call) remarked(it *keyspace.Item, deadlineMillis int64) keyspace.Item {
	if deadlineMillis != never && deadlineMillis < c.nowMillis {
		return *it
	}
	if m, ok := it.Mark(); ok {
		return it.WithMark(c.renewed(m, deadlineMillis))
	}
	if deadlineMillis != never && c.scripts.running && c.entryVersion >= versionMarks && c.scripts.made.has(c.db, it) {
		c.scripts.made.marked = true
		if owners, _ := stockOwners(it, 1); len(owners) > 0 {
			c.watchClaim(it.Key(), owners[0].Owner)
		}
		return it.WithMark(c.newMark(deadlineMillis))
	}
	return *it
}

// made is what a script made that may be a lock.
type made struct {
	// claims counts the strings that the script stored where nothing was, as SET NX does.
	claims int
	// hashes are the last hashes that came, by database and hash of the key.
	hashes [4]createdHash
	next   int
	// marked: a hash became a stock lock. released: a stock lock was removed.
	marked, released bool
}

type createdHash struct {
	known bool
	db    int
	hash  uint64
}

// noteCreated notes an item that came while the script runs.
func (h *scriptHost) noteCreated(db int, it *keyspace.Item) {
	if it.Kind() == keyspace.KindHash {
		h.made.hashes[h.made.next%len(h.made.hashes)] = createdHash{true, db, it.Hash}
		h.made.next++
	}
}

// has reports whether an item is one of the last hashes that the script created.
func (m *made) has(db int, it *keyspace.Item) bool {
	return it.Kind() == keyspace.KindHash && slices.Contains(m.hashes[:], createdHash{true, db, it.Hash})
}

// claimsOnly reports whether a script runs that has written nothing yet but claims.
func (h *scriptHost) claimsOnly(c *call) bool {
	return h.running && !h.readOnly && len(c.undo.changes)-h.from.changes == h.made.claims &&
		c.st.versions-h.from.versions == uint64(h.made.claims)
}

// incarnation is one of a node whose clients made marks.
type incarnation struct {
	number uint64
	origin protocol.Origin
}

// incarnations gives numbers to incarnations of nodes, since a mark has no room for a name. Of a number that is not
// known any more, the connections have ended long since.
type incarnations struct {
	given uint64        // numbers
	known []incarnation // in the order of their numbers
}

// maxIncarnations bounds the incarnations that are known: previous incarnations are forgotten first.
const maxIncarnations = 64

// number is the number of an incarnation.
func (is *incarnations) number(o protocol.Origin, ss sessions) uint64 {
	for i := len(is.known) - 1; i >= 0; i-- {
		if l := &is.known[i]; l.origin.Epoch == o.Epoch && l.origin.Node == o.Node {
			return l.number
		}
	}
	if len(is.known) >= maxIncarnations {
		former := slices.IndexFunc(is.known, func(l incarnation) bool {
			i, known := ss.find(l.origin.Node)
			return !known || ss[i].epoch > l.origin.Epoch
		})
		is.known = slices.Delete(slices.Clone(is.known), max(0, former), max(0, former)+1)
	}
	is.given++
	is.known = append(slices.Clip(is.known), incarnation{is.given, protocol.Origin{
		Node:  ss.nameOf(o.Node),
		Epoch: o.Epoch,
	}})
	return is.given
}

// origin is the incarnation with a number.
func (is *incarnations) origin(number uint64) (o protocol.Origin, known bool) {
	i, known := slices.BinarySearchFunc(is.known, number, func(l incarnation, n uint64) int {
		switch {
		case l.number < n:
			return -1
		case l.number > n:
			return 1
		}
		return 0
	})
	if known {
		o = is.known[i].origin
	}
	return o, known
}

// copy is good while the original changes.
func (is *incarnations) copy() incarnations { return *is }
