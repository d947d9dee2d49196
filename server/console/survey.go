package console

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// mostOfPage is how many locks are looked at between two entries at most, and rowsOfPage how many holders and
	// waiters about.
	mostOfPage, rowsOfPage = 100, 200
	// surveyWithin bounds a survey, freshFor is how long its result is good at least, and restFactor how many times
	// its length it is good.
	surveyWithin = 5 * time.Second
	freshFor     = time.Second
	restFactor   = 10
	// mostSurveys is how many results are kept.
	mostSurveys = 8
)

// EscapePattern is a pattern that matches just the text.
func EscapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// filter says which locks a survey counts.
type filter struct {
	match, mode string
	db          int
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
	s := c.survey(filter{q.Match, q.Mode, q.DB})
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
		Format: api.Format, Node: c.config.Node, NowUnixMillis: s.at, Sums: &sums, Locks: first, Truncated: ranked.all > len(first),
	}, nil
}

// Page is some of the locks from a cursor on, in the order of LOCK.LIST.
func (c *Console) Page(q Query, cursor string) (api.Locks, error) {
	f := filter{q.Match, q.Mode, q.DB}
	doc := api.Locks{Format: api.Format, Node: c.config.Node, Locks: []api.Lock{}, NextCursor: cursor}
	count := 1
	for began := time.Now(); doc.NextCursor != "" && len(doc.Locks) < q.Limit && time.Since(began) < pageWithin; {
		state, err := c.open()
		if err != nil {
			return api.Locks{}, err
		}
		doc.NowUnixMillis = state.unixMillis()
		v, err := c.list(state, &f, max(0, q.DB), doc.NextCursor, min(count, q.Limit-len(doc.Locks)))
		if err != nil {
			return api.Locks{}, err
		}
		v, rows := c.addClients(v), 0
		for _, row := range v.Elems[1].Elems {
			rows += rowsIn(row)
			if !f.wants(field(row, "mode").Str) {
				continue
			}
			l, err := api.RowOf(row, q.DB, doc.NowUnixMillis, rowsOfList)
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
		s.err = c.look(s, began.Add(surveyWithin))
		s.held.cut()
		s.queue.cut()
		if s.err == nil {
			s.err = c.finish(s)
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
		if len(c.surveys) >= mostSurveys && s.isOver() || !s.isFresh() {
			delete(c.surveys, f)
		}
	}
}

// look goes through the locks, until the deadline at most.
func (c *Console) look(s *survey, deadline time.Time) error {
	for db := range protocol.MaxDatabases {
		if s.db >= 0 && s.db != db {
			continue
		}
		complete, err := c.lookAt(s, db, deadline)
		if err != nil || !complete {
			return err
		}
	}
	s.sums.Complete = true
	return nil
}

// versionDB is the first version of the cluster whose LOCK.LIST goes through all databases but for DB.
const versionDB = 6

// lookAt goes through the locks of a database.
func (c *Console) lookAt(s *survey, db int, deadline time.Time) (complete bool, err error) {
	count := 1
	for cursor := "0"; ; {
		state, err := c.open()
		if err != nil {
			return false, err
		}
		s.at = state.unixMillis()
		f := s.filter
		f.db = db
		v, err := c.list(state, &f, db, cursor, count)
		if err != nil {
			return false, err
		}
		rows := 0
		for _, row := range v.Elems[1].Elems {
			rows += rowsIn(row)
			s.add(state, row, db)
		}
		count = nextCount(count, rows)
		if cursor = v.Elems[0].Str; cursor == "0" {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, nil
		}
	}
}

// list is a LOCK.LIST of so many locks from a cursor on, with who polls. db is the database for clusters of earlier versions.
func (c *Console) list(state *view, f *filter, db int, cursor string, count int) (protocol.Value, error) {
	words := []string{"CURSOR", cursor, "COUNT", strconv.Itoa(count)}
	if f.match != "" {
		words = append(words, "MATCH", f.match)
	}
	if version, _ := state.machine.Version(); version >= versionDB && f.db >= 0 {
		words = append(words, "DB", strconv.Itoa(f.db))
	}
	v, err := state.ask(db, "lock.list", words...)
	if err == nil {
		c.addPolls(db, "", v)
	}
	return v, err
}

// rowsIn is the number of holders and waiters in a row of LOCK.LIST.
func rowsIn(row protocol.Value) int {
	return len(field(row, "holders").Elems) + len(field(row, "waiters").Elems)
}

// nextCount is how many locks to look at next, when as many as count had so many holders and waiters.
func nextCount(count, rows int) int {
	return max(1, min(mostOfPage, 2*count, count*rowsOfPage/max(1, rows)))
}

// add counts a lock, and keeps it if it is among the first of a ranking.
func (s *survey) add(state *view, row protocol.Value, db int) {
	if !s.wants(field(row, "mode").Str) {
		return
	}
	holders, waiters := field(row, "holders-count").Num, field(row, "waiters-count").Num
	s.sums.Locks++
	s.sums.Holders += holders
	s.sums.Waiters += waiters
	if field(row, "mode").Str == stock {
		s.sums.Stock++
	}
	r := rank{since: math.MaxInt64, waiters: waiters, db: db, key: field(row, "key").Str}
	if v := field(row, "db"); v.Kind == protocol.KindInteger {
		r.db = int(v.Num)
	}
	if first := field(row, "holders").Elems; len(first) > 0 {
		r.since = field(first[0], "since").Num
	}
	s.held.add(r, row)
	if waiters > 0 {
		s.queue.add(r, row)
	}
}

// finish makes documents of the locks that are kept.
func (c *Console) finish(s *survey) error {
	state, err := c.open()
	if err != nil {
		return err
	}
	var rows []protocol.Value
	asked := make(map[*protocol.Value]bool)
	for _, kept := range [][]rank{s.held.kept, s.queue.kept} {
		for _, k := range kept[:min(detailedLocks, len(kept))] {
			if first := &k.row.Elems[0]; !asked[first] {
				asked[first] = true
				rows = append(rows, k.row)
			}
		}
	}
	c.addClients(protocol.Array(protocol.Bulk("0"), protocol.Array(rows...)))
	for _, ranked := range []*ranking{&s.held, &s.queue} {
		for _, k := range ranked.kept {
			l, err := api.RowOf(k.row, k.db, s.at, rowsOfList)
			if err != nil {
				return err
			}
			state.enliven(&l)
			ranked.locks = append(ranked.locks, l)
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
	row            protocol.Value // of LOCK.LIST, with no more holders and waiters than are shown
}

func heldLonger(a, b rank) int {
	return cmp.Or(cmp.Compare(a.since, b.since), byName(a, b))
}

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
func (r *ranking) add(next rank, row protocol.Value) {
	if r.all++; r.last != nil && r.by(next, *r.last) >= 0 {
		return
	}
	next.row = shortened(row)
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

// first are the first n locks.
func (r *ranking) first(n int) []api.Lock {
	return append([]api.Lock{}, r.locks[:min(n, len(r.locks))]...)
}
