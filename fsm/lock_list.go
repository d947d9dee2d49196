package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// LOCK.LIST goes through the databases one after another, or through one: through the native locks, then through
// the stock locks. A part is one of these; a cursor says how far the part was listed.

// parts is how many there are: two for each database.
const parts = 2 * protocol.MaxDatabases

// partShift is where a cursor has the part.
const partShift = 53

// lockListing is a LOCK.LIST under way.
type lockListing struct {
	query locks.Query
	match command.Matcher
	// db is the database that is listed, -1 for all. legacy: the entry knows no stock locks, and rows name no
	// database.
	db     int
	legacy bool
	// ranks: "lockranks" asks, see lock_ranks.go.
	ranks bool
	rows  []protocol.Value
}

// lockListOp answers with a cursor and locks, each a map as of LOCK.INFO with key and database before.
func lockListOp(c *call) protocol.Value { return c.listLocks(&lockListing{}) }

func (c *call) listLocks(l *lockListing) protocol.Value {
	l.query, l.match, l.db = locks.Query{Count: defaultListed, Most: listedRows}, command.Matcher{Pattern: "*"}, -1
	if l.ranks {
		l.query.Most = 1
	}
	if c.EntryVersion < command.VersionMarks {
		l.legacy, l.db = true, c.DB
	}
	if problem := l.parse(c.Args[1:]); problem.IsError() {
		return problem
	}
	if !c.worksOn(l.query.Count) {
		return command.ErrOverWork
	}
	c.MeetLocks()
	l.match.Start(&c.Call)
	l.query.Match = l.match.Match
	next, fits := l.run(c)
	l.match.Charge(&c.Call)
	switch {
	case !fits || !c.Fits(0):
		return command.ErrOverWork
	case l.match.Tired():
		return command.ErrPattern
	}
	return protocol.Array(protocol.Bulk(command.FormatUint(next)), protocol.Array(l.rows...))
}

// parse reads the options of LOCK.LIST.
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
		case command.IsWord(word, "DB") && !l.legacy:
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

// run lists from the cursor on, until there are as many locks as asked for. fits is false if the rows are more
// work than the request may do.
func (l *lockListing) run(c *call) (next uint64, fits bool) {
	q := &l.query
	if l.legacy || q.Session != 0 {
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
		if !fits || l.match.Tired() {
			return 0, fits
		}
		q.Cursor = 0
		if q.Count -= seen; q.Count <= 0 {
			return l.after(c, part), true
		}
	}
	return 0, true
}

// after is the cursor behind a part; 0: it was the last with a lock.
func (l *lockListing) after(c *call, part int) uint64 {
	for part++; part < parts && (l.db < 0 || part/2 == l.db); part++ {
		if db := part / 2; part%2 == 0 && c.st.Locks.Any(db) || part%2 == 1 && c.st.Databases[db].Marks() > 0 {
			return uint64(part) << partShift
		}
	}
	return 0
}

// listNative lists native locks. seen is how many locks it looked at; next is the cursor to go on from, 0 at the end.
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

// head are the first fields of a row.
func (l *lockListing) head(key string, db int) []protocol.Value {
	fields := []protocol.Value{protocol.Bulk("key"), protocol.Bulk(key)}
	if !l.legacy {
		fields = append(fields, protocol.Bulk("db"), protocol.Integer(int64(db)))
	}
	return fields
}

func (l *lockListing) add(fields []protocol.Value) { l.rows = append(l.rows, protocol.Map(fields...)) }
