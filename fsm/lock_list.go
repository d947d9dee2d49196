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

// LOCK.LIST lists one database, or all databases one after the other. The list of a database has two parts: first the
// native locks, then the stock locks. A cursor has the number of the part and the position within the part.

// parts is the number of parts of all databases.
const parts = 2 * protocol.MaxDatabases

// partShift is the bit of a cursor at which the number of the part begins.
const partShift = 53

// lockListing is the state of a LOCK.LIST request.
type lockListing struct {
	query locks.Query
	match command.Matcher
	db    int  // the listed database, or -1 for all databases
	ranks bool // the request is "lockranks"
	rows  []protocol.Value
}

// lockListOp runs LOCK.LIST. The reply is a cursor and locks. Each lock is a map of its key and database, and of the
// fields that LOCK.INFO has.
func lockListOp(c *call) protocol.Value { return c.listLocks(&lockListing{}) }

func (c *call) listLocks(l *lockListing) protocol.Value {
	l.query, l.match, l.db = locks.Query{Count: defaultListed, MaxRows: listedRows}, command.Matcher{Pattern: "*"}, -1
	if l.ranks {
		l.query.MaxRows = 1
	}
	if problem := l.parse(c.Args[1:]); problem.IsError() {
		return problem
	}
	l.query.Session = c.usableSession(l.query.Session)
	if !c.paysForKeys(l.query.Count) {
		return command.ErrOverWork
	}
	c.NoteDueLocks()
	l.match.Start(&c.Call)
	l.query.Match = func(key string) bool { return l.match.Match(key) && c.MayRead(key) }
	next, fits := l.run(c)
	l.match.Charge(&c.Call)
	switch {
	case !fits || !c.Fits(0):
		return command.ErrOverWork
	case l.match.IsExhausted():
		return command.ErrPattern
	}
	return protocol.Array(protocol.Bulk(command.FormatUint(next)), protocol.Array(l.rows...))
}

// parse parses the options of LOCK.LIST.
func (l *lockListing) parse(words []string) protocol.Value {
	q := &l.query
	problem := parseLockOptions(words, func(word string) bool {
		held, waiting := command.IsWord(word, "HELD"), command.IsWord(word, "WAITING")
		q.Held, q.Waiting = q.Held || held, q.Waiting || waiting
		return held || waiting
	}, func(word, value string) (known bool, problem protocol.Value) {
		switch {
		case command.IsWord(word, "MATCH"):
			l.match.Pattern = value
		case command.IsWord(word, "OWNER"):
			q.ByOwner, q.Owner = true, value
		case command.IsWord(word, "SESSION"):
			q.Session, problem = parseSession(value)
		case command.IsWord(word, "DB"):
			l.db, problem, _ = command.DatabaseNumber(value)
		default:
			return parsePage(word, value, &q.Cursor, &q.Count)
		}
		return true, problem
	})
	if !problem.IsError() && q.Held && q.Waiting {
		return command.ErrSyntax
	}
	return problem
}

// run adds rows from the cursor on, until it has read COUNT locks, and returns the next cursor. fits reports whether
// the budget sufficed.
func (l *lockListing) run(c *call) (next uint64, fits bool) {
	q := &l.query
	if q.Session != 0 {
		q.DB = l.db
		_, next, fits = l.listNative(c)
		return next, fits
	}
	part := int(min(q.Cursor>>partShift, parts))
	q.Cursor &= 1<<partShift - 1
	if l.db >= 0 && part < 2*l.db {
		part, q.Cursor = 2*l.db, 0
	}
	for ; part < parts && (l.db < 0 || part/2 == l.db); part++ {
		var seen int
		if part%2 == 0 {
			q.DB = part / 2
			seen, next, fits = l.listNative(c)
		} else {
			seen, next = l.listStock(c, part/2)
			fits = c.Fits(0)
		}
		if next != 0 {
			return uint64(part)<<partShift | next, fits
		}
		if !fits || l.match.IsExhausted() {
			return 0, fits
		}
		q.Cursor = 0
		if q.Count -= seen; q.Count <= 0 {
			return l.after(c, part), true
		}
	}
	return 0, true
}

// after returns the cursor of the first part after part that has locks, or 0 if there is none.
func (l *lockListing) after(c *call, part int) uint64 {
	for part++; part < parts && (l.db < 0 || part/2 == l.db); part++ {
		if db := part / 2; part%2 == 0 && c.st.Locks.HasLocks(db) || part%2 == 1 && c.st.Databases[db].Marks() > 0 {
			return uint64(part) << partShift
		}
	}
	return 0
}

// listNative adds rows for native locks. seen is the number of records that it read. next is the position of the next
// page in this part, or 0 if the part has no further page.
func (l *lockListing) listNative(c *call) (seen int, next uint64, fits bool) {
	rows, next, looked := c.st.Locks.List(&l.query, c.NowMillis)
	c.Spend(int64(looked) * command.KeyWork)
	if !c.Fits(0) {
		return looked, next, false
	}
	for i := range rows {
		if l.ranks {
			l.rankNative(c, &rows[i])
			continue
		}
		if !c.shows(&rows[i]) {
			return looked, next, false
		}
		l.add(c.showLock(l.head(rows[i].Key, rows[i].DB), &rows[i]))
	}
	return looked, next, true
}

// head returns the first fields of a row, key and database.
func (l *lockListing) head(key string, db int) []protocol.Value {
	return []protocol.Value{
		protocol.Bulk("key"), protocol.Bulk(key), protocol.Bulk("db"), protocol.Integer(int64(db)),
	}
}

func (l *lockListing) add(fields []protocol.Value) { l.rows = append(l.rows, protocol.Map(fields...)) }

// listStock adds rows for stock locks of a database, in the order of SCAN. seen is the number of stock locks that it
// read. next is the position of the next page in this part, or 0 if the part has no further page.
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
	c.NoteDueKeys()
	passed, last := 0, uint64(0)
	c.Ascend(l.query.Cursor<<command.CursorShift, func(it *keyspace.Item) bool {
		if at := command.Position(it); (seen >= l.query.Count || passed >= maxPassedKeys || c.HasDue) && at != last {
			next = at
			return false
		}
		last = command.Position(it)
		c.SpendScan()
		if !command.IsStockLock(it) {
			passed++
			return c.Fits(0)
		}
		seen++
		switch {
		case !l.query.Match(it.Key()) || !l.hasOwner(it):
		case l.ranks:
			l.rankStock(c, it, db)
		case !l.addStock(c, it, db):
			return false
		}
		return !l.match.IsExhausted() && c.Fits(0)
	})
	return seen, next
}

// listPolled is listStock for the option WAITING: it adds rows only for locks that clients poll for.
func (l *lockListing) listPolled(c *call, db int) (seen int, next uint64) {
	if c.readWatch == nil {
		return 0, 0
	}
	var polled []*keyspace.Item
	for at, queue := range c.readWatch.polls.byKey { // unordered: sorted below
		if at.db != db || !slices.ContainsFunc(queue.all, func(w poll) bool { return w.waits(c.st.ClockMillis) }) {
			continue
		}
		it := c.st.Databases[db].Find(keyspace.Hash(at.key), at.key)
		if it != nil && !it.Ended(c.NowMillis) && command.IsStockLock(it) && command.Position(it) >= l.query.Cursor &&
			l.hasOwner(it) && l.query.Match(at.key) {
			polled = append(polled, it)
		}
	}
	c.Spend(int64(len(c.readWatch.polls.byKey)) * command.KeyWork)
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
		if !l.addStock(c, it, db) {
			break
		}
	}
	return seen, 0
}

// addStock adds a row for a stock lock. It reports whether the budget sufficed; if not, it adds nothing.
func (l *lockListing) addStock(c *call, it *keyspace.Item, db int) bool {
	if !c.Pays(lockWork + c.rows(min(l.query.MaxRows, stockSize(it)))) {
		return false
	}
	l.add(c.showStock(l.head(it.Key(), db), it, &l.query))
	return true
}

// hasOwner reports whether the owner that the query selects, if any, holds a stock lock.
func (l *lockListing) hasOwner(it *keyspace.Item) bool {
	return !l.query.ByOwner || holdsStock(it, l.query.Owner)
}

// maxPassedKeys bounds the keys without a stock lock that a LOCK.LIST reads.
const maxPassedKeys = 10_000

// rank adds the values of a lock to the reply to "lockranks".
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

// lockReads has the functions of two requests that only nodes make, to list locks in other orders. "lockranks" returns
// the values by which a node sorts the locks, for a tenth of the work of LOCK.LIST. "lockrow" describes one lock.
var lockReads = map[string]op{"lockranks": lockRanksOp, "lockrow": lockRowOp}

// RankFields is the number of values of one lock in a reply to "lockranks": the key, the database, the mode, the Unix
// time of the first grant (or the largest integer without a holder), and the numbers of holders and waiters.
const RankFields = 6

// lockRanksOp runs "lockranks", which has the options of LOCK.LIST.
func lockRanksOp(c *call) protocol.Value { return c.listLocks(&lockListing{ranks: true}) }

// lockRowOp runs "lockrow <key> <rows>". It is LOCK.INFO with another bound of the holders, and of the waiters.
func lockRowOp(c *call) protocol.Value {
	if len(c.Args) != 3 {
		return command.ErrArity("lockrow")
	}
	maxRows, ok := protocol.ParseInt(c.Args[2])
	if !ok || maxRows < 1 || maxRows > infoRows {
		return command.ErrNotInteger
	}
	return c.lockInfo(c.Args[1], int(maxRows))
}
