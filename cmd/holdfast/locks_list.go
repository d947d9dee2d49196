package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// lockQuery selects the listed locks.
type lockQuery struct {
	pattern string        // "" for all
	db      int           // negative for all
	heldFor time.Duration // the minimum age of a hold, 0 to include free locks
}

// look returns all matching locks, longest held first.
func (q lockQuery) look(ctx context.Context, conn *operator.Conn) (api.Locks, error) {
	doc := api.Locks{Format: api.Format, Sums: &api.Sums{Complete: true}, Locks: []api.Lock{}}
	var err error
	if doc.NowUnixMillis, err = clusterNow(ctx, conn); err != nil {
		return doc, err
	}
	for cursor := ""; cursor != "0"; {
		words := []string{"LOCK.LIST", "COUNT", "1000"}
		if q.pattern != "" {
			words = append(words, "MATCH", q.pattern)
		}
		if q.db >= 0 {
			words = append(words, "DB", strconv.Itoa(q.db))
		}
		if cursor != "" {
			words = append(words, "CURSOR", cursor)
		}
		v, err := conn.Do(ctx, words...)
		if err != nil {
			return doc, err
		}
		var page []api.Lock
		if cursor, page, err = api.PageOfLocks(v, max(0, q.db), doc.NowUnixMillis); err != nil {
			return doc, err
		}
		doc.Locks = append(doc.Locks, page...)
	}
	if q.heldFor > 0 {
		until := doc.NowUnixMillis - q.heldFor.Milliseconds()
		doc.Locks = slices.DeleteFunc(doc.Locks, func(l api.Lock) bool { return len(l.Holders) == 0 || oldest(&l) > until })
	}
	for i := range doc.Locks {
		l := &doc.Locks[i]
		doc.Sums.Locks++
		doc.Sums.Holders += l.HoldersCount
		doc.Sums.Waiters += l.WaitersCount
		if l.Mode == stockMode {
			doc.Sums.Stock++
		}
	}
	slices.SortStableFunc(doc.Locks, func(a, b api.Lock) int { return cmp.Compare(oldest(&a), oldest(&b)) })
	return doc, nil
}

// stockMode is the mode of a lock that was acquired by Redis's own commands.
const stockMode = "stock"

// oldest returns the beginning of a lock's oldest hold, or else of its oldest wait.
func oldest(l *api.Lock) int64 {
	switch {
	case len(l.Holders) > 0:
		return l.Holders[0].SinceUnixMillis
	case len(l.Waiters) > 0:
		return l.Waiters[0].SinceUnixMillis
	}
	return 1<<63 - 1
}

// clusterNow returns the cluster's present time as Unix time.
func clusterNow(ctx context.Context, conn *operator.Conn) (millis int64, err error) {
	v, err := conn.Do(ctx, "TIME")
	if err != nil || len(v.Elems) != 2 {
		return 0, err
	}
	return timeOf(v), nil
}

// timeOf converts a reply to TIME to milliseconds.
func timeOf(v protocol.Value) int64 {
	seconds, _ := strconv.ParseInt(v.Elems[0].Str, 10, 64)
	micros, _ := strconv.ParseInt(v.Elems[1].Str, 10, 64)
	return seconds*1000 + micros/1000
}

// frame returns the table of the locks, or a sentence if there is none.
func (q lockQuery) frame(ctx context.Context, conn *operator.Conn) (string, error) {
	doc, err := q.look(ctx, conn)
	if err != nil {
		return "", err
	}
	if len(doc.Locks) == 0 {
		return q.none(ctx, conn)
	}
	return lockTable(&doc), nil
}

// none returns the reason why no lock is listed.
func (q lockQuery) none(ctx context.Context, conn *operator.Conn) (string, error) {
	all, err := lockQuery{db: -1}.look(ctx, conn)
	switch {
	case err != nil:
		return "", err
	case len(all.Locks) == 0:
		return "nobody holds a lock or waits for one\n", nil
	case q.heldFor > 0:
		return fmt.Sprintf("no such lock is held for %s; %s in all\n", q.heldFor, counted(int64(len(all.Locks)), "lock")), nil
	case q.pattern == "":
		return fmt.Sprintf("no locks in database %d, %d in others\n", q.db, len(all.Locks)), nil
	}
	there := ""
	if q.db >= 0 {
		elsewhere, err := lockQuery{pattern: q.pattern, db: -1}.look(ctx, conn)
		if err != nil {
			return "", err
		}
		there = fmt.Sprintf(" in database %d, %d in others", q.db, len(elsewhere.Locks))
	}
	return fmt.Sprintf("no lock matches %s%s; %s\n", printable(q.pattern), there, counted(int64(len(all.Locks)), "lock")+
		" in all"), nil
}

// lockList is a table of locks.
type lockList struct {
	*table
	dbs bool // the names have databases
}

// lockTable returns a line for each hold and each waiter, in the order of the queue, and one with totals.
func lockTable(doc *api.Locks) string {
	l := &lockList{
		table: newTable("LOCK", "STATE", "OWNER", "FENCE", "MODE", "FOR", "LEFT", "CLIENT", "HEARD", "NOTE"),
		dbs:   slices.ContainsFunc(doc.Locks, func(l api.Lock) bool { return l.DB != 0 }),
	}
	longest := int64(0)
	for i := range doc.Locks {
		l.lock(&doc.Locks[i])
		for j := range doc.Locks[i].Holders {
			longest = max(longest, doc.Locks[i].Holders[j].HeldMillis)
		}
	}
	s := doc.Sums
	text := l.String() + fmt.Sprintf("%s, %d of them stock: %s, %s", counted(s.Locks, "lock"), s.Stock,
		counted(s.Holders, "holder"), counted(s.Waiters, "waiter"))
	if longest > 0 {
		text += ", held longest: " + duration(longest)
	}
	text += "\n"
	for i := range doc.Locks {
		if k := &doc.Locks[i]; k.Advice != "" {
			text += nameOf(k.Key, k.DB, l.dbs) + ": " + k.Advice + "\n"
		}
	}
	return text
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// nameOf returns the name of a key, with its database if dbs is set.
func nameOf(key string, db int, dbs bool) string {
	if dbs {
		return printable(key) + " (" + strconv.Itoa(db) + ")"
	}
	return printable(key)
}

func (l *lockList) lock(k *api.Lock) {
	name := nameOf(k.Key, k.DB, l.dbs)
	for i := range k.Holders {
		h := &k.Holders[i]
		left, fence := limited(h.LeaseLeftMillis), ""
		if h.Session != nil {
			left = "its session, " + strconv.FormatInt(h.Session.ID, 10)
		}
		if h.Fence != 0 {
			fence = strconv.FormatInt(h.Fence, 10)
		}
		l.line(name, "held", printable(h.Owner), fence, modeOf(h.Mode, h.Permits), duration(h.HeldMillis), left,
			clientOf(h.Client), lastInputOf(h.Client), printable(h.Note))
	}
	l.more(name, "held", k.HoldersCount-int64(len(k.Holders)))
	for i := range k.Waiters {
		w := &k.Waiters[i]
		state := "waits"
		if w.Absent {
			state = "away" // its position is kept for a while
		}
		l.line(name, state, printable(w.Owner), "", modeOf(w.Mode, w.Permits), duration(w.WaitedMillis),
			limited(w.WaitLeftMillis),
			clientOf(w.Client), lastInputOf(w.Client), printable(w.Note))
	}
	l.more(name, "waits", k.WaitersCount-int64(len(k.Waiters)))
	if k.DelayLeftMillis > 0 {
		l.line(name, "delayed", "", "", "", "", duration(k.DelayLeftMillis))
	}
}

// more adds a row with the number of rows that the node left out.
func (l *lockList) more(name, state string, n int64) {
	if n > 0 {
		l.line(name, state, fmt.Sprintf("and %d more", n))
	}
}

func modeOf(mode string, permits int64) string {
	if permits > 0 {
		return fmt.Sprintf("permits %d", permits)
	}
	return mode
}

// clientOf returns a client's address and name, or its node and number.
func clientOf(c *api.Client) string {
	switch {
	case c == nil:
		return ""
	case c.Address == "" && c.Number == 0:
		return printable(c.Node)
	case c.Address == "":
		return printable(c.Node) + "/" + strconv.FormatInt(c.Number, 10)
	case c.Name != "":
		return printable(c.Address) + " " + printable(c.Name)
	}
	return printable(c.Address)
}

// lastInputOf describes when a client last sent something, "" if unknown.
func lastInputOf(c *api.Client) string {
	switch {
	case c == nil:
		return ""
	case c.Gone:
		return "gone"
	case c.IdleMillis == nil:
		return ""
	}
	return duration(*c.IdleMillis) + " ago"
}

func limited(millis *int64) string {
	if millis == nil {
		return ""
	}
	return duration(*millis)
}

// duration returns the time left as text, "" without an end.
func duration(leftMillis int64) string {
	if leftMillis < 0 {
		return ""
	}
	d := millis(leftMillis)
	if d > time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}
