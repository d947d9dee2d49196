package audit

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// Trail is the content of several files.
type Trail struct {
	// Lines has the lines of the log in the order of the log, and after them the lines of the nodes, each once.
	Lines []Line
	// Unreadable is the number of invalid lines, such as the beginning of a line that a killed node did not complete.
	Unreadable int
	// Conflicts is the number of lines of the log that have the ID of another line, and other content. All are in Lines.
	Conflicts int
	// Spans has the spans that each file covers, in the order of the file.
	Spans []Span
}

// Span is a time for which a file has all lines of the log that its node wrote.
type Span struct {
	Node           string `json:"node,omitempty"` // "" if no line of the file names the node
	Cluster        string `json:"cluster"`
	FromUnixMillis int64  `json:"fromUnixMillis"`
	ToUnixMillis   int64  `json:"toUnixMillis"`
	// FromIndex and ToIndex are the indexes of the entries of the first and the last line.
	FromIndex uint64 `json:"fromIndex"`
	ToIndex   uint64 `json:"toIndex"`
	// Locks has the patterns of the locks whose lines the file has, separated by blanks, or is "" for all locks.
	Locks string `json:"locks,omitempty"`
}

// Has reports whether the file has the lines of a lock.
func (s *Span) Has(key string) bool {
	return s.Locks == "" || slices.ContainsFunc(strings.Fields(s.Locks), func(p string) bool {
		return protocol.Match(p, key, false)
	})
}

// lineID identifies a line. conflict numbers the lines of the log that have the same ID and other content.
type lineID struct {
	cluster, node string
	index         uint64
	run           int64
	n             int
	conflict      int
}

const (
	// MaxLineBytes bounds a line, in bytes.
	MaxLineBytes = 64 << 10
	// clockSlack is the difference, in milliseconds, that does not yet count as a correction of the clock: between the
	// times of two lines, or between the length of a hold and its ends.
	clockSlack = 1000
)

// Read reads the wanted lines from the files of several nodes, in any order of nodes. Each reader has the files of one
// node, the oldest first.
func Read(from []io.Reader, want func(*Line) bool) (Trail, error) {
	t := Trail{Lines: []Line{}}
	at := make(map[lineID]int)
	for _, r := range from {
		f := fileReader{Trail: &t, want: want, at: at, first: len(t.Spans)}
		if err := f.read(bufio.NewReaderSize(r, MaxLineBytes)); err != nil {
			return t, err
		}
	}
	t.sort()
	return t, nil
}

// fileReader reads the lines of one node.
type fileReader struct {
	*Trail
	want  func(*Line) bool
	at    map[lineID]int // the positions in Lines
	first int            // the position of the file's first span in Spans
	node  string
	// isOpen is set if the next line may extend the last span. index is the index of the last line of the log.
	isOpen bool
	index  uint64
	locks  string // as in Span
	// isTorn is set if a damaged line comes before the next one.
	isTorn bool
}

func (f *fileReader) read(lines *bufio.Reader) error {
	for {
		text, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if tooLong || len(text) > 1 {
			f.readLine(text, tooLong)
		}
		if err != nil {
			break
		}
	}
	for i := range f.Spans[f.first:] {
		f.Spans[f.first+i].Node = f.node
	}
	return nil
}

func (f *fileReader) readLine(text []byte, tooLong bool) {
	line, err := ParseLine(text)
	switch {
	case tooLong || err != nil:
		f.Unreadable++
		f.isTorn = tooLong || text[0] == '{' || text[0] == 0
	case line.Event == "":
		f.Unreadable++
	default:
		f.cover(&line)
		f.add(&line)
	}
}

// cover extends the last span by a line, or begins a span. A span ends where lines were dropped or damaged, where the
// node restored a snapshot of later entries, and where the cluster, or the selection of locks, changes or a clock was
// set back. A torn line before Started is no damage: the process applies the entry of the line again.
func (f *fileReader) cover(l *Line) {
	f.isOpen, f.isTorn = f.isOpen && (!f.isTorn || l.Event == Started), false
	if l.Run != 0 {
		f.node = cmp.Or(f.node, l.Node)
		f.isOpen = f.isOpen && l.Event != Dropped && !f.skips(l)
		if locks := locksOf(l); l.Event == Started && locks != f.locks {
			f.isOpen, f.locks = false, locks
		}
		return
	}
	f.index = l.Index
	at := l.Time.UnixMilli()
	// A lease, or a wait, may have ended long before the entry that says so.
	early := l.Event == event.LockTaken || l.Event == event.LockWaitEnded
	if f.isOpen {
		s := &f.Spans[len(f.Spans)-1]
		if s.Cluster == l.Cluster && (early || at >= s.ToUnixMillis-clockSlack) {
			s.ToUnixMillis, s.ToIndex = max(s.ToUnixMillis, at), max(s.ToIndex, l.Index)
			return
		}
	}
	if f.isOpen = !early; f.isOpen {
		f.Spans = append(f.Spans, Span{
			Cluster: l.Cluster, FromUnixMillis: at, ToUnixMillis: at, FromIndex: l.Index, ToIndex: l.Index, Locks: f.locks,
		})
	}
}

// locksOf returns the patterns in a line Started. If the text is so long that the last pattern may have been cut,
// locksOf leaves that pattern out.
func locksOf(l *Line) string {
	locks, _ := strings.CutPrefix(l.Text, auditLocks)
	if len(l.Text) >= maxTextBytes {
		locks = locks[:max(0, strings.LastIndexByte(locks, ' '))]
	}
	return locks
}

// skips reports whether a line reports that the node has skipped entries after the last line of the log.
func (f *fileReader) skips(l *Line) bool {
	return l.Event == Restored && (l.Index > f.index || l.Cluster != f.Spans[len(f.Spans)-1].Cluster)
}

// add adds a line, unless another file had it. It keeps the line of the client's node, which alone has the address.
func (f *fileReader) add(line *Line) {
	line.Key, line.Owner = line.Names()
	if !f.want(line) {
		return
	}
	id := lineID{cluster: line.Cluster, index: line.Index, n: line.N}
	if line.Run != 0 {
		id.index, id.node, id.run = 0, line.Node, line.Run
	}
	for {
		known, twice := f.at[id]
		switch {
		case !twice:
			f.at[id] = len(f.Lines)
			f.Lines = append(f.Lines, *line)
			if id.conflict > 0 {
				f.Conflicts++
			}
			return
		case f.Lines[known].saysWhat(line):
			if f.Lines[known].Addr == "" {
				f.Lines[known] = *line
			}
			return
		}
		id.conflict++
	}
}

// saysWhat reports whether two lines are about the same event.
func (l *Line) saysWhat(o *Line) bool {
	return l.Event == o.Event && l.Kind == o.Kind && l.DB == o.DB && l.Key == o.Key && l.Owner == o.Owner &&
		l.Fence == o.Fence && l.Time.Equal(o.Time)
}

// Covers reports whether the wanted spans have all lines from one instant to another, of one cluster or, if cluster is
// "", of any. Spans of two files join if the indexes of their entries overlap. Overlapping times are not enough: the
// clocks of two leaders differ, so that entries between the spans may be missing.
func (t *Trail) Covers(cluster string, want func(*Span) bool, fromMillis, toMillis int64) bool {
	var spans []Span
	for i := range t.Spans {
		if want(&t.Spans[i]) {
			spans = append(spans, t.Spans[i])
		}
	}
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.FromIndex, b.FromIndex))
	})
	var joined Span
	for i, s := range spans {
		if i == 0 || s.Cluster != joined.Cluster || s.FromIndex >= joined.ToIndex {
			joined = s
		}
		joined.ToUnixMillis, joined.ToIndex = max(joined.ToUnixMillis, s.ToUnixMillis), max(joined.ToIndex, s.ToIndex)
		if (cluster == "" || cluster == joined.Cluster) && joined.FromUnixMillis <= fromMillis &&
			toMillis <= joined.ToUnixMillis {
			return true
		}
	}
	return false
}

// CoversHold reports whether the files have all lines of a hold's lock from its beginning to an instant.
func (t *Trail) CoversHold(h *Hold, toMillis int64) bool {
	return t.Covers(h.Cluster, func(s *Span) bool { return s.Has(h.Key) }, h.SinceUnixMillis, toMillis)
}

// sort sorts the lines of the log by cluster and ID, and after them the lines of nodes by time.
func (t *Trail) sort() {
	begun := make(map[string]time.Time)
	for i := range t.Lines {
		l := &t.Lines[i]
		if at, known := begun[l.Cluster]; !known || l.Time.Before(at) {
			begun[l.Cluster] = l.Time
		}
	}
	slices.SortStableFunc(t.Lines, func(a, b Line) int {
		switch own, other := a.Run != 0, b.Run != 0; {
		case own && !other:
			return 1
		case other && !own:
			return -1
		case own:
			return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Node, b.Node), cmp.Compare(a.N, b.N))
		}
		return cmp.Or(begun[a.Cluster].Compare(begun[b.Cluster]), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Index, b.Index), cmp.Compare(a.N, b.N))
	})
}

// Hold is a hold of a lock by an owner. EndedUnixMillis is 0 if the files do not have the end.
type Hold struct {
	Cluster         string `json:"cluster,omitempty"`
	Key             string `json:"key"`
	KeyBase64       []byte `json:"keyBase64,omitempty"`
	DB              int    `json:"db"`
	Kind            string `json:"kind"` // native or stock
	Owner           string `json:"owner"`
	OwnerBase64     []byte `json:"ownerBase64,omitempty"`
	Fence           int64  `json:"fence,omitempty"`
	Session         uint64 `json:"session,omitempty"`
	Client          string `json:"client,omitempty"`
	Addr            string `json:"addr,omitempty"`
	Name            string `json:"name,omitempty"`
	User            string `json:"user,omitempty"`
	SinceUnixMillis int64  `json:"sinceUnixMillis"`
	EndedUnixMillis int64  `json:"endedUnixMillis,omitempty"`
	WaitedMillis    int64  `json:"waitedMillis,omitempty"`
	Note            string `json:"note,omitempty"` // the last NOTE of LOCK.ACQUIRE
	// Uncertain is the reason for which the beginning or the end may be wrong, or "" if they are certain.
	Uncertain string `json:"uncertain,omitempty"`
	// Ended is released, lost, swapped (the hold continues in another database), renewed (it continues with another fence)
	// or [EndMissing]. Reason is the reason of a loss, and Command, By and Text describe the command that caused the loss.
	Ended   string `json:"ended,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Command string `json:"command,omitempty"`
	By      string `json:"by,omitempty"`
	Text    string `json:"text,omitempty"`
	// Index is the index of the entry that granted the lock or, if the files do not have the grant, that ended the hold.
	Index uint64 `json:"index"`
}

// EndMissing is the end of a hold whose end is not in the files: it ended before a later grant.
const EndMissing = "end not in the files"

// LinesMissing is the [Hold.Uncertain] of a hold that may have ended at a time that no file covers.
const LinesMissing = "lines are missing since"

// At reports whether the lock was held at an instant.
func (h *Hold) At(unixMillis int64) bool {
	return h.SinceUnixMillis <= unixMillis && (h.EndedUnixMillis == 0 || unixMillis <= h.EndedUnixMillis)
}

// Holds returns the holds in the lines, in the order of their grants. An owner has one hold of a lock. So a grant ends
// the owner's former hold even if the files do not have that end, and the holds of other owners unless they share the
// lock.
func (t *Trail) Holds() []Hold {
	b := holdBuilder{holds: []Hold{}, open: make(map[lockID]map[string]int), former: make(map[string]string)}
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Event == ClusterBegun && l.OldCluster != "" {
			b.former[l.Cluster] = l.OldCluster
		}
	}
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Run == 0 {
			b.add(l)
		}
	}
	for i := range b.holds {
		h := &b.holds[i]
		if h.EndedUnixMillis == 0 && h.Uncertain == "" && !t.CoversHold(h, t.end(h.Cluster)) {
			h.Uncertain = LinesMissing
		}
	}
	return b.holds
}

// end returns the last instant that the files cover for a cluster.
func (t *Trail) end(cluster string) (atMillis int64) {
	for i := range t.Spans {
		if s := &t.Spans[i]; s.Cluster == cluster {
			atMillis = max(atMillis, s.ToUnixMillis)
		}
	}
	return atMillis
}

// lockID identifies a lock.
type lockID struct {
	cluster string
	db      int
	key     string
}

type holdBuilder struct {
	holds []Hold
	begun []beginning // of each hold
	// open has the positions of the holds without an end, by lock and owner.
	open map[lockID]map[string]int
	// former has for a cluster the cluster whose state it began with.
	former map[string]string
}

// beginning has the fields of the grant, or of a later renewal, that decide how a hold may end.
type beginning struct {
	isShared  bool
	ageMillis int64 // of the key of a stock lock
}

func (b *holdBuilder) add(l *Line) {
	id, at := lockID{l.Cluster, l.DB, l.Key}, l.Time.UnixMilli()
	switch l.Event {
	case event.LockGranted:
		b.endMissing(id, l, at)
		b.begun[b.begin(id, l, at)].ageMillis = l.HeldMillis
	case event.LockRenewed:
		n := b.findOrBegin(id, l, at)
		if b.holds[n].Fence != l.Fence {
			b.endOwner(id, n, l, at)
			n = b.begin(id, l, at)
			b.begun[n].ageMillis = l.HeldMillis
		}
		b.begun[n].isShared = l.Shared
		h := &b.holds[n]
		h.Session, h.Client, h.Addr, h.Name, h.User, h.Note = l.Session, l.Client, l.Addr, l.Name, l.User, l.Note
	case event.LockReleased, event.LockTaken:
		if l.Count == 0 {
			b.endOwner(id, b.findOrBegin(id, l, at), l, at)
			return
		}
		for _, n := range b.owners(id) {
			b.endOwner(id, n, l, at)
		}
	case event.LocksFlushed:
		for _, n := range b.takeDatabases(l) {
			b.end(n, l, at)
			b.holds[n].Ended, b.holds[n].Reason = event.LockTaken, l.Event
		}
	case event.LocksSwapped:
		for _, n := range b.takeDatabases(l) {
			next, begun := b.holds[n], b.begun[n]
			b.end(n, l, at)
			begun.ageMillis += at - next.SinceUnixMillis
			next.Cluster, next.DB, next.Index = l.Cluster, l.DB+l.ToDB-next.DB, l.Index
			next.SinceUnixMillis, next.WaitedMillis = at, 0
			b.holds, b.begun = append(b.holds, next), append(b.begun, begun)
			b.keepOpen(lockID{next.Cluster, next.DB, next.Key}, next.Owner, len(b.holds)-1)
		}
	}
}

// endOwner ends a hold of a lock by a line of its owner, or of all owners.
func (b *holdBuilder) endOwner(id lockID, n int, l *Line, at int64) {
	b.end(n, l, at)
	b.holds[n].correct(l, b.begun[n].ageMillis)
	delete(b.open[id], b.holds[n].Owner)
}

func (b *holdBuilder) end(n int, l *Line, at int64) {
	h := &b.holds[n]
	h.EndedUnixMillis, h.Ended, h.Reason, h.Command, h.By, h.Text = at, l.Event, l.Reason, l.Command, l.By, l.Text
	h.Note = cmp.Or(l.Note, h.Note)
}

// takeDatabases removes the stock locks of a flushed database, or of two swapped ones, from the open locks. It returns
// the positions of their holds, in order.
func (b *holdBuilder) takeDatabases(l *Line) (taken []int) {
	for id, owners := range b.open {
		isOf := id.db == l.DB || l.Event == event.LocksSwapped && id.db == l.ToDB
		if !isOf || id.cluster != l.Cluster && id.cluster != b.former[l.Cluster] {
			continue
		}
		for owner, n := range owners {
			if b.holds[n].Kind == l.Kind {
				taken = append(taken, n)
				delete(owners, owner)
			}
		}
	}
	slices.Sort(taken)
	return taken
}

// begin adds a hold without an end.
func (b *holdBuilder) begin(id lockID, l *Line, since int64) int {
	n := len(b.holds)
	b.holds, b.begun = append(b.holds, holdOf(l, since)), append(b.begun, beginning{isShared: l.Shared})
	b.keepOpen(id, l.Owner, n)
	return n
}

// keepOpen adds the nth hold to the open ones.
func (b *holdBuilder) keepOpen(id lockID, owner string, n int) {
	if b.open[id] == nil {
		b.open[id] = make(map[string]int)
	}
	b.open[id][owner] = n
}

// findOrBegin returns the position of the open hold of a line's owner. If the files do not have the grant, it begins a
// hold by the duration in the line.
func (b *holdBuilder) findOrBegin(id lockID, l *Line, at int64) int {
	if n, isOpen := b.owners(id)[l.Owner]; isOpen {
		return n
	}
	return b.begin(id, l, at-l.HeldMillis)
}

// owners returns the open holds of a lock by owner. If the cluster began with the state of another cluster, that
// cluster's open holds are among them.
func (b *holdBuilder) owners(id lockID) map[string]int {
	old := id
	if old.cluster = b.former[id.cluster]; old.cluster != "" {
		for owner, n := range b.open[old] {
			if _, known := b.open[id][owner]; !known {
				b.keepOpen(id, owner, n)
			}
		}
		delete(b.open, old)
	}
	return b.open[id]
}

// endMissing ends the holds that cannot exist beside one that is granted. The files do not have their ends.
func (b *holdBuilder) endMissing(id lockID, l *Line, at int64) {
	owners := b.owners(id)
	for owner, n := range owners {
		if h := &b.holds[n]; owner == l.Owner || !l.Shared || !b.begun[n].isShared {
			h.EndedUnixMillis, h.Ended, h.Uncertain = at, EndMissing, EndMissing
			delete(owners, owner)
		}
	}
}

// correct sets the beginning of a hold by its duration if a clock was corrected meanwhile. The line of a stock lock has
// the age of the key, so ageMillis is the age at the grant.
func (h *Hold) correct(l *Line, ageMillis int64) {
	length, held := h.EndedUnixMillis-h.SinceUnixMillis, max(0, l.HeldMillis-ageMillis)
	if length < 0 || max(length-held, held-length) > clockSlack {
		h.SinceUnixMillis, h.Uncertain = h.EndedUnixMillis-held, "the clock was corrected"
	}
}

func holdOf(l *Line, since int64) Hold {
	return Hold{
		Cluster: l.Cluster,
		Key:     l.Key, KeyBase64: l.KeyBase64, DB: l.DB, Kind: l.Kind, Owner: l.Owner, OwnerBase64: l.OwnerBase64,
		Fence: l.Fence, Session: l.Session, Client: l.Client, Addr: l.Addr, Name: l.Name, User: l.User,
		SinceUnixMillis: since, WaitedMillis: l.WaitedMillis, Note: l.Note, Index: l.Index,
	}
}
