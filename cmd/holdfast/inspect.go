package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/backup"
)

const inspectUsage = `usage: holdfast inspect [flags] FILE|-

Proves all checksums of a backup, and says what is in it. A file that was cut off, damaged, or written by a newer
release is an error.
`

// inspectOwn are the flags of `holdfast inspect`.
type inspectOwn struct {
	fences int
	json   bool
}

func (o *inspectOwn) rows() []option {
	return []option{
		{heading: "The report"},
		{name: "fences", value: &o.fences, help: "most keys to list that look like fences"},
		{name: "json", value: &o.json, help: "one JSON document in place of the report"},
	}
}

// inspect is `holdfast inspect`, which describes a backup.
func inspect(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o := &inspectOwn{fences: shownFences}
	path, err := parseFile(o.rows(), args, stdout, inspectUsage, fileOrPipe("inspect"))
	switch {
	case err != nil:
		return err
	case o.fences < 0:
		return usageError{fmt.Errorf("fences %d: not negative", o.fences)}
	}
	f, err := openFile(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := backup.Inspect(f, o.fences)
	if err != nil {
		return aboutFile(path, err)
	}
	if o.json {
		return writeJSON(stdout, newInspectDocument(path, r.Meta, r.Summary, &r.Survey))
	}
	p := &paper{w: stdout}
	p.source(r.Meta)
	p.line("checksums", "right: %d bytes, sha256 %s", r.Summary.FileBytes, r.Summary.SHA256)
	p.state(&r.Survey)
	p.fences(&r.Survey)
	return p.err
}

// fileOrPipe describes the argument of a command that reads a backup.
func fileOrPipe(command string) string {
	return "say which file, or - for the standard input, as in 'aws s3 cp s3://BUCKET/NAME - | holdfast " + command + " -'"
}

// openFile opens a file for reading, - for the standard input. Opening a pipe without a writer, and reads, end with
// ctx.
func openFile(ctx context.Context, path string) (*os.File, error) {
	if path == "-" {
		path = os.Stdin.Name()
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() { // this goroutine may remain: opening a pipe without a writer cannot be cancelled
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		if o.err == nil {
			context.AfterFunc(ctx, func() { _ = o.f.SetReadDeadline(time.Now()) }) // an error is of a regular file, which needs no deadline
		}
		return o.f, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// paper is a report of lines with a name each.
type paper struct {
	w   io.Writer
	err error
}

func (p *paper) line(name, format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
}

// source adds the origin of a backup.
func (p *paper) source(m backup.Meta) {
	p.line("taken", "%s, by node %s of cluster %s", m.TakenAt.UTC().Format(time.RFC3339), printable(m.NodeID),
		printable(cmp.Or(m.ClusterID, "(none)")))
	if m.Stale {
		p.line("stale", "the node had not asked the leader: acknowledged writes may be missing")
	}
	p.line("log", "index %d, term %d", m.Index, m.Term)
	p.line("release", "%s, log format %d", printable(m.Release), m.EntryVersion)
}

// state adds a summary of a state.
func (p *paper) state(s *fsm.Survey) {
	p.line("keys", "%d", s.Keys())
	for db, kinds := range s.Kinds {
		for i, name := range slices.Sorted(maps.Keys(kinds)) {
			label := ""
			if i == 0 {
				label = fmt.Sprintf("  database %d", db)
			}
			p.line(label, "%-7s %d", name, kinds[name])
		}
	}
	p.line("leases", "%d keys with a time to live, the longest %v", s.Leases, millis(s.LongestMillis))
	p.line("locks", "%d native: %d holds, %d sessions, the longest lease %v, %d fences given out",
		s.Locks.Locks, s.Locks.Holds, s.Locks.Sessions, millis(s.LongestHoldMillis), s.Fences)
	p.line("waiting", "%d clients for keys, %d for native locks", s.Waiters, s.Locks.Waiting)
	p.line("scripts", "%d", s.Scripts)
}

// fences adds the keys that look like fences.
func (p *paper) fences(s *fsm.Survey) {
	p.line("fences", "%d keys look like fences: strings without a time to live that hold a positive integer", s.FenceCount)
	for _, f := range s.FenceKeys {
		p.line("", "%s (database %d): %d", printable(f.Key), f.DB, f.Value)
	}
	if more := s.FenceCount - len(s.FenceKeys); more > 0 {
		p.line("", "and %d more", more)
	}
}

// millis returns n milliseconds as a time.Duration, at most the longest one, 292 years.
func millis(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// aboutFile names the file in an error that is about the file.
func aboutFile(path string, err error) error {
	for _, what := range []error{backup.ErrNoBackup, backup.ErrCutOff, backup.ErrDamaged, backup.ErrNewer} {
		if errors.Is(err, what) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return err
}

// shownFences bounds the listed keys that look like fences.
const shownFences = 20
