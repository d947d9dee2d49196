package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/audit"
)

// auditAnswer is the answer of `holdfast locks history --audit` from files of --audit-log.
type auditAnswer struct {
	Format int          `json:"format"`
	Holds  []audit.Hold `json:"holds"` // in the order of their grants
	// Nodes are lines about nodes: refused logins, administrators' commands, and gaps.
	Nodes []audit.Line `json:"nodes"`
	// Covered are the times for which a file is complete. Unknown is the reason why the holders at the requested
	// instant are unknown, or "".
	Covered []audit.Span `json:"covered"`
	Unknown string       `json:"unknown,omitempty"`
	// Unreadable counts lines that are not valid, and Conflicts lines that contradict another file's.
	Unreadable int `json:"unreadable,omitempty"`
	Conflicts  int `json:"conflicts,omitempty"`
}

// statusUnknown is the exit status of `holdfast locks history --audit` if the files do not say who held a lock.
const statusUnknown = 3

// readAudit is `holdfast locks history --audit`, which answers from files instead of a node.
func (o *locksOwn) readAudit(words []string, now time.Time, stdout io.Writer) error {
	var at int64
	if o.at != "" {
		instant, err := parseInstant(o.at, now)
		if err != nil {
			return usageError{err}
		}
		at = instant.UnixMilli()
	}
	from, closeAll, err := openAudit(append([]string{o.audit}, words...))
	defer closeAll()
	if err != nil {
		return err
	}
	trail, err := audit.Read(from, func(l *audit.Line) bool {
		if l.Run != 0 {
			return at == 0 || slices.Contains(gapEvents, l.Event)
		}
		return l.OfDatabase() || o.lock == "" || protocol.Match(o.lock, l.Key, false)
	})
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	a := answerOf(&trail, o, at)
	if o.json {
		err = writeJSON(stdout, a)
	} else {
		_, err = io.WriteString(stdout, a.table(at, o.lock == ""))
	}
	if err == nil && a.Unknown != "" {
		err = exitStatus{status: statusUnknown}
	}
	return err
}

// gapEvents are the events of a node after which lines may be missing.
var gapEvents = []string{audit.Started, audit.Restored, audit.Dropped, audit.ClusterBegun}

// answerOf answers about an instant, or about all time if that is 0.
func answerOf(trail *audit.Trail, o *locksOwn, at int64) *auditAnswer {
	a := &auditAnswer{
		Format: api.Format, Holds: trail.Holds(), Nodes: []audit.Line{}, Covered: trail.Spans,
		Unreadable: trail.Unreadable, Conflicts: trail.Conflicts,
	}
	if a.Covered == nil {
		a.Covered = []audit.Span{}
	}
	a.Holds = slices.DeleteFunc(a.Holds, func(h audit.Hold) bool { return o.db >= 0 && h.DB != o.db })
	for _, l := range trail.Lines {
		if l.Run != 0 {
			a.Nodes = append(a.Nodes, l)
		}
	}
	isCovered := func(s audit.Span) bool { return o.isWritten(&s) }
	switch {
	case len(trail.Spans) == 0:
		a.Unknown = "the files cover no time"
	case !slices.ContainsFunc(trail.Spans, isCovered):
		a.Unknown = leftOut
	}
	if at == 0 {
		return a
	}
	a.Holds = slices.DeleteFunc(a.Holds, func(h audit.Hold) bool { return !h.At(at) })
	for i := range a.Holds {
		h := &a.Holds[i]
		if h.EndedUnixMillis == 0 && (h.Uncertain == "" || h.Uncertain == audit.LinesMissing) {
			h.Uncertain = "" // lines may be missing later
			if !trail.CoversHold(h, at) {
				h.Uncertain = audit.LinesMissing
			}
		}
		if h.Uncertain != "" {
			a.Unknown = "of a hold the files have not all: see UNCERTAIN"
		}
	}
	anyLock := func(*audit.Span) bool { return true }
	switch {
	case !trail.Covers("", anyLock, at, at):
		a.Unknown = "the files do not cover this time"
	case !trail.Covers("", o.isWritten, at, at):
		a.Unknown = leftOut
	}
	return a
}

// leftOut is the Unknown of an answer if the files cover the instant, but not all locks that --lock matches.
const leftOut = "the files have only locks that --audit-locks names: see LOCKS"

// isWritten reports whether a file has the lines of all locks that --lock matches. Without --lock it reports true: the
// answer is about the locks that the files have.
func (o *locksOwn) isWritten(s *audit.Span) bool {
	switch {
	case o.lock == "", s.Locks == "":
		return true
	case !strings.ContainsAny(o.lock, `*?[\`):
		return s.Has(o.lock)
	}
	// If a pattern of the file has no wildcard but *, and matches the text of --lock, it matches all that --lock matches.
	return slices.ContainsFunc(strings.Fields(s.Locks), func(p string) bool {
		isPlain := !strings.ContainsAny(p+o.lock, `[\`) && !strings.Contains(p, "?")
		return p == o.lock || isPlain && protocol.Match(p, o.lock, false)
	})
}

// openAudit opens files and their older parts, FILE.1 and so on. Each reader has the parts of one node, oldest first.
func openAudit(words []string) (from []io.Reader, closeAll func(), err error) {
	var opened []*os.File
	closeAll = func() {
		for _, f := range opened {
			f.Close()
		}
	}
	older := map[string]bool{} // older parts of other words
	for _, path := range words {
		for n := 1; n < audit.FileCount; n++ {
			older[path+"."+strconv.Itoa(n)] = true
		}
	}
	for _, path := range words {
		if older[path] {
			continue
		}
		// The newest part is opened first, so that none is missed if a node rotates them meanwhile.
		var parts []io.Reader
		for n := range audit.FileCount {
			name := path
			if n > 0 {
				name += "." + strconv.Itoa(n)
			}
			f, err := os.Open(name)
			switch {
			case n == 0 && errors.Is(err, os.ErrNotExist):
				return nil, closeAll, fmt.Errorf("%w; with --audit all words are files, and --lock is the pattern of names",
					err)
			case errors.Is(err, os.ErrNotExist):
				// The following parts are after a gap, so they get a reader of their own.
				if len(parts) > 0 {
					from, parts = append(from, io.MultiReader(parts...)), nil
				}
				continue
			case err != nil:
				return nil, closeAll, err
			}
			opened = append(opened, f)
			// An older part may end within a line.
			parts = slices.Insert(parts, 0, io.Reader(f), io.Reader(strings.NewReader("\n")))
		}
		if len(parts) > 0 {
			from = append(from, io.MultiReader(parts...))
		}
	}
	return from, closeAll, nil
}

// parseInstant reads a time with its zone, or one of UTC: a date and a time, or a time of the last 24 hours.
func parseInstant(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			now = now.UTC()
			t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("at %q: use a time of UTC, such as 02:00 or 2026-01-31T02:00:00, or one with its zone",
		text)
}

// table returns a line for each hold, newest grants first, and below a line for each event of a node. With anyName it
// reports if the files do not have all locks.
func (a *auditAnswer) table(at int64, anyName bool) string {
	text := ""
	switch {
	case a.Unknown != "" && at != 0:
		text = "not known for " + utc(at) + ": " + a.Unknown + "\n"
	case a.Unknown != "":
		text = "not known: " + a.Unknown + "\n"
	}
	switch {
	case len(a.Holds) > 0:
		dbs := slices.ContainsFunc(a.Holds, func(h audit.Hold) bool { return h.DB != 0 })
		t := newTable("SINCE", "ENDED", "LOCK", "OWNER", "FENCE", "HELD", "HOW", "CLIENT", "USER", "NOTE", "BY", "REASON",
			"CLUSTER", "UNCERTAIN")
		for i := range slices.Backward(a.Holds) {
			h := &a.Holds[i]
			ended, held, fence, by := "", "", "-", ""
			if h.EndedUnixMillis != 0 {
				ended, held = utc(h.EndedUnixMillis), duration(h.EndedUnixMillis-h.SinceUnixMillis)
			}
			if h.Fence != 0 {
				fence = strconv.FormatInt(h.Fence, 10)
			}
			if h.Command != "" {
				by = h.Command + " " + cmp.Or(printable(h.By), "?")
			}
			client := printable(cmp.Or(h.Addr, h.Client))
			if h.Name != "" {
				client += " " + printable(h.Name)
			}
			t.line(utc(h.SinceUnixMillis), ended, nameOf(h.Key, h.DB, dbs), printable(h.Owner), fence, held,
				cmp.Or(h.Reason, h.Ended), client, printable(h.User), printable(h.Note), by, printable(h.Text),
				printable(h.Cluster), h.Uncertain)
		}
		text += t.String()
	case a.Unknown == "":
		text = "nobody held a lock that matches, as far as the files say\n" +
			"(no line has a hold that began before their first line and goes on: holdfast docs audit)\n"
	}
	text += a.covered()
	if anyName && slices.ContainsFunc(a.Covered, func(s audit.Span) bool { return s.Locks != "" }) {
		text += "locks that --audit-locks did not name are left out: see LOCKS\n"
	}
	if len(a.Nodes) > 0 {
		t := newTable("AT", "NODE", "EVENT", "WHAT", "CLIENT", "USER", "BY")
		for i := range a.Nodes {
			l := &a.Nodes[i]
			what := printable(cmp.Or(l.Command, l.Key))
			if l.Text != "" {
				what = printable(l.Text)
			}
			if l.Event == audit.Restored {
				what = fmt.Sprintf("from index %d to %d", l.From, l.Index)
			}
			if l.Count != 0 {
				what += fmt.Sprintf(" (%d)", l.Count)
			}
			t.line(utc(l.Time.UnixMilli()), l.Node, l.Event, what, printable(l.Addr), printable(l.User), printable(l.By))
		}
		text += "\n" + t.String()
	}
	if a.Unreadable > 0 {
		text += counted(int64(a.Unreadable), "line") + " of the files could not be read\n"
	}
	if a.Conflicts > 0 {
		text += counted(int64(a.Conflicts), "line") + " contradict another file's\n"
	}
	return text
}

// covered returns a line for each time for which a file is complete.
func (a *auditAnswer) covered() string {
	if len(a.Covered) == 0 {
		return "the files have no line about a lock\n"
	}
	t := newTable("COVERED FROM", "TO", "NODE", "CLUSTER", "LOCKS")
	for _, s := range a.Covered {
		t.line(utcMillis(s.FromUnixMillis), utcMillis(s.ToUnixMillis), printable(cmp.Or(s.Node, "?")), printable(s.Cluster),
			printable(cmp.Or(s.Locks, "all")))
	}
	return "\n" + t.String()
}

func utcMillis(unixMillis int64) string {
	return time.UnixMilli(unixMillis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func utc(unixMillis int64) string { return time.UnixMilli(unixMillis).UTC().Format(time.RFC3339) }
