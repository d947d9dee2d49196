package fsm

import (
	"github.com/holdfast/holdfast/protocol"
)

// historyQuery says which losses LOCK.HISTORY lists.
type historyQuery struct {
	match  matcher
	db     int // -1: all
	owned  bool
	owner  string
	native bool // only these
	stock  bool
	cursor uint64
	count  int
}

func (q *historyQuery) parse(words []string) protocol.Value {
	problem := parseLockOptions(words, func(word string) bool {
		native, stock := isWord(word, "NATIVE"), isWord(word, "STOCK")
		q.native, q.stock = q.native || native, q.stock || stock
		return native || stock
	}, func(word, value string) (known bool, problem protocol.Value) {
		switch {
		case isWord(word, "MATCH"):
			q.match.pattern = value
		case isWord(word, "OWNER"):
			q.owned, q.owner = true, value
		case isWord(word, "DB"):
			q.db, problem, _ = databaseNumber(value)
		default:
			return parsePage(word, value, &q.cursor, &q.count)
		}
		return true, problem
	})
	if !problem.IsError() && q.native && q.stock {
		return errSyntax
	}
	return problem
}

func (q *historyQuery) wants(l *lockLoss) bool {
	if q.native && l.kind != nativeLocks || q.stock && l.kind != stockLocks {
		return false
	}
	return (q.db < 0 || l.db == q.db) && (!q.owned || l.owner == q.owner) && q.match.match(l.key)
}

// lockHistoryOp answers with a cursor and losses, the newest first. COUNT is how many are listed.
func lockHistoryOp(c *call) protocol.Value {
	q := &historyQuery{match: matcher{pattern: "*"}, db: -1, count: defaultListed}
	if problem := q.parse(c.args[1:]); problem.IsError() {
		return problem
	}
	h := &c.st.history
	work := int64(0)
	for i := range h.kinds {
		work += int64(len(h.kinds[i].byTime.rows)+len(h.kinds[i].byForce.rows)) * keyWork
	}
	if !c.fits(work) {
		return errOverWork
	}
	c.spend(work)
	c.meetLocks()
	c.meetStockEnds()
	q.match.start(c)
	var shown []protocol.Value
	next := uint64(0)
	h.descend(q.cursor, func(l *lockLoss, more uint64) bool {
		switch {
		case !q.wants(l):
		case len(shown) == q.count:
			next = l.id + 1
			return false
		default:
			shown = append(shown, c.showLoss(l, more))
		}
		return true
	})
	q.match.charge(c)
	switch {
	case !c.fits(c.rows(len(shown))):
		return errOverWork
	case q.match.tired():
		return errPattern
	}
	c.spend(c.rows(len(shown)))
	return protocol.Array(protocol.Bulk(formatUint(next)), protocol.Array(shown...))
}

// kindNames are the kinds of locks in replies.
var kindNames = [lockKinds]string{nativeLocks: "native", stockLocks: modeStock}

func (c *call) showLoss(l *lockLoss, more uint64) protocol.Value {
	cause := &lossCause{}
	if known := c.st.history.kinds[l.kind].cause(l.cause); known != nil {
		cause = known
	}
	return protocol.Map(
		protocol.Bulk("id"), protocol.Integer(int64(l.id)),
		protocol.Bulk("ended"), protocol.Integer(l.wall(l.atMillis)),
		protocol.Bulk("key"), protocol.Bulk(l.key),
		protocol.Bulk("db"), protocol.Integer(int64(l.db)),
		protocol.Bulk("kind"), protocol.Bulk(kindNames[l.kind]),
		protocol.Bulk("reason"), protocol.Bulk(l.reason.String()),
		protocol.Bulk("owner"), protocol.Bulk(l.owner),
		protocol.Bulk("fence"), protocol.Integer(int64(l.fence)),
		protocol.Bulk("since"), protocol.Integer(l.wall(l.sinceMillis)),
		protocol.Bulk("note"), protocol.Bulk(l.note),
		protocol.Bulk("session"), protocol.Integer(int64(l.session)),
		protocol.Bulk("client"), protocol.Bulk(showClient(l.client)),
		protocol.Bulk("more"), protocol.Integer(int64(more)),
		protocol.Bulk("command"), protocol.Bulk(cause.command),
		protocol.Bulk("text"), protocol.Bulk(cause.text),
		protocol.Bulk("by-client"), protocol.Bulk(showOrigin(cause.client)),
		protocol.Bulk("by-addr"), protocol.Bulk(cause.address),
		protocol.Bulk("by-name"), protocol.Bulk(cause.name))
}
