package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// Query says which locks are wanted.
type Query struct {
	Match string // a pattern, as LOCK.LIST's; empty: all
	DB    int    // -1: all
	Mode  string // as in [api.Lock], or native: all but stock; empty: all
	// Sort is [Held] or [Queue].
	Sort  string
	Limit int
	// Rules are those of the user who asks: keys that the user may not read are left out. Empty: the user may do
	// everything.
	Rules string
}

// Orders of locks.
const (
	Held  = "held"  // held longest first
	Queue = "queue" // longest queue first; without those in whose line nobody waits
)

const (
	// MaxLimit is the most locks in an answer, and rowsOfList the most holders, and the most waiters, of each. The nodes
	// of the clients of the first detailedLocks are asked about them.
	MaxLimit      = 200
	rowsOfList    = 5
	detailedLocks = 100
	// maxScannedLocks bounds the locks that a survey scans between two entries, maxPageLocks those that it lists, and
	// rowsOfPage is about how many of their holders and waiters it lists.
	maxScannedLocks, maxPageLocks, rowsOfPage = 1000, 100, 200
	// surveyWithin bounds a survey, freshFor is how long its result is good at least, and restFactor how many times
	// its length it is good.
	surveyWithin = 5 * time.Second
	freshFor     = time.Second
	restFactor   = 10
	// maxSurveys bounds the kept results.
	maxSurveys = 8
)

// EscapePattern is a pattern that matches just the text.
func EscapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// filter says which locks a survey counts.
type filter struct {
	match, mode string
	db          int
	rules       string
}

func (f *filter) wants(mode string) bool {
	return f.mode == "" || f.mode == mode || f.mode == "native" && mode != stock
}

const stock = "stock" // a mode

// survey is a look at all locks, which may be under way.
type survey struct {
	filter
	done chan struct{}
	// All below is good once done is closed.
	err         error
	at          int64 // Unix time of the look
	sums        api.Sums
	held, queue ranking
	until       time.Time // when the result is too old
}

// Locks tells of locks in an order.
func (c *Console) Locks(ctx context.Context, q Query) (api.Locks, error) {
	s := c.survey(filter{q.Match, q.Mode, q.DB, q.Rules})
	select {
	case <-s.done:
	case <-ctx.Done():
		return api.Locks{}, ErrBusy
	}
	if s.err != nil {
		return api.Locks{}, s.err
	}
	ranked := &s.held
	if q.Sort == Queue {
		ranked = &s.queue
	}
	sums, first := s.sums, ranked.first(q.Limit)
	return api.Locks{
		Format: api.Format, Node: c.config.Node, NowUnixMillis: s.at, Sums: &sums, Locks: first,
		Truncated: ranked.all > q.Limit,
	}, nil
}

// Page is some of the locks from a cursor on, in the order of LOCK.LIST.
func (c *Console) Page(q Query, cursor string) (api.Locks, error) {
	f := filter{q.Match, q.Mode, q.DB, q.Rules}
	doc := api.Locks{Format: api.Format, Node: c.config.Node, Locks: []api.Lock{}, NextCursor: cursor}
	count := 1
	for began := time.Now(); doc.NextCursor != "" && len(doc.Locks) < q.Limit && time.Since(began) < pageWithin; {
		state, err := c.open()
		if err != nil {
			return api.Locks{}, err
		}
		doc.NowUnixMillis = state.unixMillis()
		v, err := state.list("lock.list", &f, doc.NextCursor, min(count, q.Limit-len(doc.Locks)))
		if err != nil {
			return api.Locks{}, err
		}
		c.addPolls(max(0, q.DB), "", v)
		v, rows := c.addClients(v), 0
		for _, row := range v.Elems[1].Elems {
			rows += rowsIn(row)
			if !f.wants(field(row, "mode").Str) {
				continue
			}
			l, err := api.RowOf(row, q.DB, doc.NowUnixMillis, rowsOfList)
			if err == nil {
				err = c.clearReleased(&l)
			}
			if err != nil {
				return api.Locks{}, err
			}
			state.enliven(&l)
			doc.Locks = append(doc.Locks, l)
		}
		count = nextCount(count, rows)
		if doc.NextCursor = v.Elems[0].Str; doc.NextCursor == "0" {
			doc.NextCursor = ""
		}
	}
	return doc, nil
}

// pageWithin bounds the time of a page, which then has fewer locks.
const pageWithin = time.Second

// survey is a fresh survey, or the one that is under way.
func (c *Console) survey(f filter) *survey {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.surveys[f]; s != nil && s.isFresh() {
		return s
	}
	c.makeRoom()
	s := &survey{filter: f, done: make(chan struct{}), held: ranking{by: heldLonger}, queue: ranking{by: queuesLonger}}
	c.surveys[f] = s
	go func() {
		defer close(s.done)
		c.turn <- struct{}{}
		defer func() { <-c.turn }()
		began := time.Now()
		s.err = c.run(s, began.Add(surveyWithin))
		s.held.cut()
		s.queue.cut()
		if s.err == nil {
			s.err = c.finish(s, began.Add(2*surveyWithin))
		}
		s.until = time.Now().Add(max(freshFor, restFactor*time.Since(began)))
	}()
	return s
}

// isOver reports whether the survey is not under way.
func (s *survey) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *survey) isFresh() bool { return !s.isOver() || s.err == nil && time.Now().Before(s.until) }

// makeRoom forgets results. The caller holds mu.
func (c *Console) makeRoom() {
	for f, s := range c.surveys {
		if len(c.surveys) >= maxSurveys && s.isOver() || !s.isFresh() {
			delete(c.surveys, f)
		}
	}
}

// run goes through the locks, until the deadline at most.
func (c *Console) run(s *survey, deadline time.Time) error {
	for cursor := "0"; ; {
		state, err := c.open()
		if err != nil {
			return err
		}
		v, err := state.list("lockranks", &s.filter, cursor, maxScannedLocks)
		if err != nil {
			return err
		}
		for each := v.Elems[1].Elems; len(each) >= fsm.RankFields; each = each[fsm.RankFields:] {
			s.add(each)
		}
		if cursor = v.Elems[0].Str; cursor == "0" {
			s.sums.Complete = true
			return nil
		}
		if time.Now().After(deadline) {
			return nil
		}
	}
}

// list asks for so many locks from a cursor on.
func (s *view) list(request string, f *filter, cursor string, count int) (protocol.Value, error) {
	words := []string{"CURSOR", cursor, "COUNT", strconv.Itoa(count)}
	if f.match != "" {
		words = append(words, "MATCH", f.match)
	}
	if f.db >= 0 {
		words = append(words, "DB", strconv.Itoa(f.db))
	}
	return s.askAs(protocol.Head{Rights: f.rules}, request, words...)
}

// rowsIn is the number of holders and waiters in a row of LOCK.LIST.
func rowsIn(row protocol.Value) int {
	return len(field(row, "holders").Elems) + len(field(row, "waiters").Elems)
}

// nextCount is how many locks to look at next, when as many as count had so many holders and waiters.
func nextCount(count, rows int) int {
	return max(1, min(maxPageLocks, 2*count, count*rowsOfPage/max(1, rows)))
}

// add counts a lock, and keeps it if it is among the first of a ranking.
func (s *survey) add(of []protocol.Value) {
	mode := of[2].Str
	if !s.wants(mode) {
		return
	}
	r := rank{key: of[0].Str, db: int(of[1].Num), since: of[3].Num, waiters: of[5].Num}
	s.sums.Locks++
	s.sums.Holders += of[4].Num
	s.sums.Waiters += r.waiters
	if mode == stock {
		s.sums.Stock++
	}
	s.held.add(r)
	if r.waiters > 0 {
		s.queue.add(r)
	}
}

// finish makes documents of the locks that are kept, as they are now; those that are gone are left out, and those that
// are not asked for by the deadline.
func (c *Console) finish(s *survey, deadline time.Time) error {
	state, err := c.open()
	if err != nil {
		return err
	}
	s.at = state.unixMillis()
	known := make(map[rank]protocol.Value)
	var rows []protocol.Value
	for _, kept := range [][]rank{s.held.kept, s.queue.kept} {
		for i, k := range kept {
			if _, has := known[k]; has {
				continue
			}
			if time.Now().After(deadline) {
				s.sums.Complete = false
				break
			}
			row, err := state.ask(k.db, "lockrow", k.key, strconv.Itoa(rowsOfList))
			if err != nil && !errors.Is(err, ErrNoLock) {
				return err
			}
			if err == nil && !row.IsNull() {
				c.addPolls(k.db, k.key, row)
				row = shortened(row)
				if i < detailedLocks {
					rows = append(rows, row)
				}
			}
			known[k] = row
		}
	}
	c.addClients(protocol.Array(protocol.Bulk("0"), protocol.Array(rows...)))
	for _, ranked := range []*ranking{&s.held, &s.queue} {
		for _, k := range ranked.kept {
			row, asked := known[k]
			if !asked {
				continue
			}
			l, there, err := api.LockOf(row, k.key, k.db, s.at)
			if err != nil {
				return err
			}
			if there {
				if err := c.clearReleased(&l); err != nil {
					return err
				}
				state.enliven(&l)
				ranked.locks = append(ranked.locks, l)
			}
		}
		ranked.kept = nil
	}
	return nil
}

// field is the value of a field in a map.
func field(v protocol.Value, name string) protocol.Value {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if v.Elems[i].Str == name {
			return v.Elems[i+1]
		}
	}
	return protocol.Null
}

// rank is a lock with what decides its place.
type rank struct {
	since, waiters int64 // since: of the first holder
	db             int
	key            string
}

func heldLonger(a, b rank) int { return cmp.Or(cmp.Compare(a.since, b.since), byName(a, b)) }

func queuesLonger(a, b rank) int {
	return cmp.Or(cmp.Compare(b.waiters, a.waiters), cmp.Compare(a.since, b.since), byName(a, b))
}

func byName(a, b rank) int { return cmp.Or(cmp.Compare(a.db, b.db), strings.Compare(a.key, b.key)) }

// ranking keeps the first [MaxLimit] of an order.
type ranking struct {
	by   func(a, b rank) int
	all  int    // that were added
	kept []rank // sorted up to MaxLimit
	last *rank  // the last of the first MaxLimit, once there are as many
	// locks are the kept ones as documents, once the survey is finished.
	locks []api.Lock
}

// add keeps a lock that may be among the first.
func (r *ranking) add(next rank) {
	if r.all++; r.last != nil && r.by(next, *r.last) >= 0 {
		return
	}
	if r.kept = append(r.kept, next); len(r.kept) >= 2*MaxLimit {
		r.cut()
	}
}

// cut sorts, and drops what is not among the first.
func (r *ranking) cut() {
	slices.SortFunc(r.kept, r.by)
	if len(r.kept) >= MaxLimit {
		clear(r.kept[MaxLimit:])
		r.kept = r.kept[:MaxLimit]
		last := r.kept[MaxLimit-1]
		r.last = &last
	}
}

// shortened is a row without the holders and waiters that are not shown. The strings of it are kept.
func shortened(row protocol.Value) protocol.Value {
	for i := 1; i < len(row.Elems); i += 2 {
		if v := &row.Elems[i]; v.Kind == protocol.KindArray && len(v.Elems) > rowsOfList {
			v.Elems = slices.Clone(v.Elems[:rowsOfList])
		}
	}
	return row
}

func (r *ranking) first(n int) []api.Lock {
	return append([]api.Lock{}, r.locks[:min(n, len(r.locks))]...)
}
