package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// historyQuery selects the losses that LOCK.HISTORY lists.
type historyQuery struct {
	match  command.Matcher
	db     int  // -1 selects all databases
	owned  bool // only losses of owner
	owner  string
	native bool // only native locks
	stock  bool // only stock locks
	cursor uint64
	count  int
}

func (q *historyQuery) parse(words []string) protocol.Value {
	problem := parseLockOptions(words, func(word string) bool {
		native, stock := command.IsWord(word, "NATIVE"), command.IsWord(word, "STOCK")
		q.native, q.stock = q.native || native, q.stock || stock
		return native || stock
	}, func(word, value string) (known bool, problem protocol.Value) {
		switch {
		case command.IsWord(word, "MATCH"):
			q.match.Pattern = value
		case command.IsWord(word, "OWNER"):
			q.owned, q.owner = true, value
		case command.IsWord(word, "DB"):
			q.db, problem, _ = command.DatabaseNumber(value)
		default:
			return parsePage(word, value, &q.cursor, &q.count)
		}
		return true, problem
	})
	if !problem.IsError() && q.native && q.stock {
		return command.ErrSyntax
	}
	return problem
}

func (q *historyQuery) wants(l *lockLoss) bool {
	if q.native && l.kind != nativeLocks || q.stock && l.kind != stockLocks {
		return false
	}
	return (q.db < 0 || l.db == q.db) && (!q.owned || l.owner == q.owner) && q.match.Match(l.key)
}

// lockHistoryOp runs LOCK.HISTORY. The reply is a cursor and at most COUNT losses, the newest first.
func lockHistoryOp(c *call) protocol.Value {
	q := &historyQuery{match: command.Matcher{Pattern: "*"}, db: -1, count: defaultListed}
	if problem := q.parse(c.Args[1:]); problem.IsError() {
		return problem
	}
	h := &c.st.history
	work := int64(0)
	for i := range h.kinds {
		work += int64(len(h.kinds[i].byTime.rows)+len(h.kinds[i].byForce.rows)) * command.KeyWork
	}
	if !c.Pays(work) {
		return command.ErrOverWork
	}
	c.NoteDueLocks()
	c.noteDueStockLocks()
	q.match.Start(&c.Call)
	var shown []protocol.Value
	next := uint64(0)
	h.descend(q.cursor, func(l *lockLoss, more uint64) bool {
		switch {
		case !q.wants(l) || !c.MayRead(l.key):
		case len(shown) == q.count:
			next = l.id + 1
			return false
		default:
			shown = append(shown, c.showLoss(l, more))
		}
		return true
	})
	q.match.Charge(&c.Call)
	switch {
	case !c.Fits(c.rows(len(shown))):
		return command.ErrOverWork
	case q.match.IsExhausted():
		return command.ErrPattern
	}
	c.Spend(c.rows(len(shown)))
	return protocol.Array(protocol.Bulk(command.FormatUint(next)), protocol.Array(shown...))
}

// kindNames has the names of the kinds of locks for replies.
var kindNames = [lockKinds]string{nativeLocks: "native", stockLocks: modeStock}

func (c *call) showLoss(l *lockLoss, more uint64) protocol.Value {
	cause := &lossCause{}
	if known := c.st.history.kinds[l.kind].cause(l.causeID); known != nil {
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
