package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/audit"
)

// auditAnswer is what files of --audit-log say.
type auditAnswer struct {
	Format int          `json:"format"`
	Holds  []audit.Hold `json:"holds"` // in the order of their grants
	// Nodes are the lines of nodes: refused logins, administrators' commands, and what is missing.
	Nodes []audit.Line `json:"nodes"`
	// Unreadable are lines of the files that are none.
	Unreadable int `json:"unreadable,omitempty"`
}

// readAudit answers from files, in place of a node.
func (o *locksOwn) readAudit(words []string, now time.Time, stdout io.Writer) error {
	var at int64
	if o.at != "" {
		instant, err := parseInstant(o.at, now)
		if err != nil {
			return usageError{err}
		}
		at = instant.UnixMilli()
	}
	var from []io.Reader
	for _, path := range append([]string{o.audit}, words...) {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w; with --audit all words are files, and --lock is the pattern of names", err)
		}
		if err != nil {
			return err
		}
		defer f.Close()
		from = append(from, f)
	}
	trail, err := audit.Read(from, func(l *audit.Line) bool {
		return l.Run != 0 || (o.lock == "" || protocol.Match(o.lock, l.Key, false)) && (o.db < 0 || l.DB == o.db)
	})
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	a := auditAnswer{Format: api.Format, Holds: trail.Holds(), Nodes: []audit.Line{}, Unreadable: trail.Unreadable}
	if at != 0 {
		a.Holds = slices.DeleteFunc(a.Holds, func(h audit.Hold) bool { return !h.At(at) })
	}
	for _, l := range trail.Lines {
		if l.Run != 0 && (at == 0 || l.Event == audit.Dropped) {
			a.Nodes = append(a.Nodes, l)
		}
	}
	if o.json {
		return writeJSON(stdout, a)
	}
	_, err = io.WriteString(stdout, a.table())
	return err
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

// table has a line for each hold, those granted last first, and below one for each line of a node.
func (a *auditAnswer) table() string {
	text := "nobody held a lock that matches, as far as the files say\n"
	if len(a.Holds) > 0 {
		dbs := slices.ContainsFunc(a.Holds, func(h audit.Hold) bool { return h.DB != 0 })
		t := newTable("SINCE", "ENDED", "LOCK", "OWNER", "FENCE", "HELD", "HOW", "CLIENT", "USER", "BY", "REASON")
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
				cmp.Or(h.Reason, h.Ended), client, printable(h.User), by, printable(h.Text))
		}
		text = t.String()
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
				what = fmt.Sprintf("up to index %d", l.Index)
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
	return text
}

func utc(unixMillis int64) string { return time.UnixMilli(unixMillis).UTC().Format(time.RFC3339) }
