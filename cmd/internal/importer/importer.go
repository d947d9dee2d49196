// Package importer copies keys from a Redis server to Holdfast, or to any other server that speaks Redis's protocol:
// `holdfast import`.
//
// It promises:
//
//   - A counter never decreases: the larger of the two numbers is kept (FENCE.PASS's rule).
//   - A copy never expires before the key at the source, since a lease that did would have two holders: its time to
//     live is counted from the source's answer, and computed again for each attempt. It expires later by the time of
//     the two exchanges at most.
//   - A key that exists with another value is left unchanged, and reported.
//   - Each key is copied completely or not at all, whenever the program is killed. A large key is copied under a
//     temporary name (tempSuffix), which expires. Another run copies the missing keys, and none twice.
//   - Memory is bounded for keys of any size.
//
// It does not promise a snapshot: each key is copied as it is at one instant of its own. The source is only read, by
// SCAN, TYPE, the reads of each type, PTTL, MULTI and WATCH.
//
// This file copies pages of keys; source.go has addresses and connections, read.go and large.go read a key at one
// instant, target.go and import.lua write it.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
)

// Job selects the keys to be copied.
type Job struct {
	From *Source
	To   *operator.Servers
	// Counters are patterns of keys. A key is copied as a counter if it holds an integer and has no time to live.
	Counters []string
	Raise    int64 // is added to counters
	// Leases are patterns of keys of all kinds. A key is copied unless it exists.
	Leases []string
	DryRun bool
	// Progress, if not nil, is called after each page of keys.
	Progress func(*Report)
}

// Tally counts keys that were copied, and keys that existed already.
type Tally struct{ Copied, There int64 }

// Report is the progress of a job.
type Report struct {
	Keys     int64 // approximate number of keys at the source
	Looked   int64 // keys named by SCAN; one that moves meanwhile may be named twice
	Counters Tally
	Leases   Tally
	Gone     int64 // expired or were deleted before they were read
	// Largest is the largest of the source's counters, plus Raise.
	Largest    int64
	LargestKey string
	Skipped    []Skipped // the most frequent reason first
	Missing    []string  // the first keys that would be copied, in a dry run
}

// Skipped are matching keys that were not copied.
type Skipped struct {
	Reason string
	Count  int64
	Keys   []string // the first of them
}

// Bounds of a report.
const (
	shownKeys  = 5
	maxReasons = 50
)

// skip is the reason why a key is not copied.
type skip string

func (s skip) Error() string { return string(s) }

// Reasons that are found by this program.
const (
	skipOther   = skip("another value is there")
	skipEnded   = skip("it has ended meanwhile")
	skipKind    = skip("its kind changes all the time")
	skipNumber  = skip("no counter: not an integer")
	skipLease   = skip("no counter: it has a time to live")
	skipTooHigh = skip("the raised counter is beyond 2^63-1")
	skipString  = skip("a string of more than 8 MiB")
	skipMoved   = skip(
		"another server of the target, a Redis Cluster, has its slot: repeat this with each primary as server")
)

// sourceError is an error of the source, which ends the job.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// work is a running job.
type work struct {
	*Job
	target  *target
	report  *Report
	reasons map[string]int // indexes of Skipped
}

// Run copies the keys. The report is valid with an error, too; another run copies the rest.
func (j *Job) Run(ctx context.Context) (*Report, error) {
	w := &work{Job: j, target: newTarget(j.To, j.DryRun), report: &Report{}, reasons: map[string]int{}}
	defer w.target.close()
	defer w.sortReasons()
	readers, err := j.From.open(ctx)
	if err != nil {
		return w.report, fmt.Errorf("the source: %w", err)
	}
	defer closeAll(readers)
	for _, r := range readers {
		if v, err := r.conn.Do(ctx, "DBSIZE"); err == nil {
			w.report.Keys += v.Num
		}
	}
	for _, r := range readers {
		if err := w.all(ctx, r); err != nil {
			return w.report, err
		}
	}
	return w.report, nil
}

// all copies the keys of one server.
func (w *work) all(ctx context.Context, r *reader) (err error) {
	pattern := ""
	if all := slices.Concat(w.Counters, w.Leases); len(all) == 1 {
		pattern = all[0]
	}
	for cursor := firstCursor; ; {
		var keys []string
		if cursor, keys, err = r.scan(ctx, cursor, pattern); err != nil {
			return w.failed(r, sourceError{err})
		}
		w.report.Looked += int64(len(keys))
		keys = slices.DeleteFunc(keys, func(key string) bool { return !matches(w.Counters, key) && !matches(w.Leases, key) })
		for some := range slices.Chunk(keys, groupKeys) {
			if err := w.some(ctx, r, some); err != nil {
				return w.failed(r, err)
			}
		}
		if w.Progress != nil {
			w.Progress(w.report)
		}
		if cursor == firstCursor {
			return nil
		}
	}
}

// failed adds to an error whether the source or the cluster failed.
func (w *work) failed(r *reader, err error) error {
	if s := (sourceError{}); errors.As(err, &s) {
		return fmt.Errorf("the source: %s: %w", r.addr, s.error)
	}
	return fmt.Errorf("the target: %w", err)
}

func matches(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return p == "*" || protocol.Match(p, key, false) })
}

// some copies a page of keys.
func (w *work) some(ctx context.Context, r *reader, keys []string) error {
	shapes, err := r.look(ctx, keys)
	if err != nil {
		return sourceError{err}
	}
	var group []shape
	bytes := int64(0)
	for _, s := range shapes {
		switch {
		case s.kind == "none":
			w.report.Gone++
			continue
		case w.unfit(&s) != "":
			w.skip(s.key, w.unfit(&s))
			continue
		case s.kind == "string" && s.bytes > maxNumber && !matches(w.Leases, s.key):
			w.skip(s.key, skipNumber)
			continue
		case s.large():
			if err := w.one(ctx, r, s); err != nil {
				return err
			}
			continue
		}
		if len(group) > 0 && bytes+s.bytes > groupBytes {
			if err := w.group(ctx, r, group, true); err != nil {
				return err
			}
			group, bytes = nil, 0
		}
		group, bytes = append(group, s), bytes+s.bytes
	}
	return w.group(ctx, r, group, true)
}

// unfit returns the reason why a key of that shape is not copied, or "".
func (w *work) unfit(s *shape) skip {
	switch {
	case counts[s.kind] == "":
		return skip("Holdfast has no values of type " + s.kind)
	case s.kind == "string" && s.bytes > maxString:
		return skipString
	case s.kind != "string" && !matches(w.Leases, s.key):
		return skip("no counter: a " + s.kind)
	}
	return ""
}

// one copies a large key.
func (w *work) one(ctx context.Context, r *reader, s shape) error {
	reply, err := w.copyLarge(ctx, r, s)
	switch why := skip(""); {
	case err == nil:
		w.count(&w.report.Leases, s.key, reply)
	case err == error(skipEnded):
		w.report.Gone++
	case errors.As(err, &why):
		w.skip(s.key, why)
	default:
		return err
	}
	return nil
}

// group copies small keys. A key whose kind has changed since look is retried once.
func (w *work) group(ctx context.Context, r *reader, shapes []shape, first bool) error {
	if len(shapes) == 0 {
		return nil
	}
	items, refused, err := r.readAll(ctx, shapes)
	if err != nil {
		return sourceError{err}
	}
	var calls []*command
	var of []*item
	var tallies []*Tally
	var again []string
	for i := range items {
		it := &items[i]
		switch why := refused[i]; {
		case strings.HasPrefix(why, "WRONGTYPE") && first:
			again = append(again, it.key)
			continue
		case strings.HasPrefix(why, "WRONGTYPE"):
			w.skip(it.key, skipKind)
			continue
		case why == errFieldLives:
			w.skip(it.key, skip(why))
			continue
		case why != "":
			w.skip(it.key, skip("the source refuses to read it: "+why))
			continue
		case len(it.words) == 0:
			w.report.Gone++
			continue
		}
		c, tally, why := w.call(it)
		if why != "" {
			w.skip(it.key, why)
			continue
		}
		calls, of, tallies = append(calls, c), append(of, it), append(tallies, tally)
	}
	if err := w.target.run(ctx, calls...); err != nil {
		return err
	}
	for i, c := range calls {
		switch err := refusal(c.reply); {
		case c.late:
			w.report.Gone++
		case err != nil && fatal(c.reply) != nil:
			return err
		case err != nil:
			w.skip(of[i].key, skip(err.Error()))
		case c.again && c.reply.Num != other:
			w.count(tallies[i], of[i].key, written) // probably by an earlier attempt
		default:
			w.count(tallies[i], of[i].key, c.reply.Num)
		}
	}
	return w.lookAgain(ctx, r, again)
}

// lookAgain retries keys whose kind has changed.
func (w *work) lookAgain(ctx context.Context, r *reader, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	shapes, err := r.look(ctx, keys)
	if err != nil {
		return sourceError{err}
	}
	shapes = slices.DeleteFunc(shapes, func(s shape) bool {
		switch {
		case s.kind == "none":
			w.report.Gone++
		case w.unfit(&s) != "", s.large():
			w.skip(s.key, skipKind)
		default:
			return false
		}
		return true
	})
	return w.group(ctx, r, shapes, false)
}

// call returns the command that writes a small key, or the reason why it is not copied.
func (w *work) call(it *item) (c *command, tally *Tally, why skip) {
	mode := modeCopy
	if w.DryRun {
		mode = modeDry
	}
	if it.kind == "string" && matches(w.Counters, it.key) {
		value, ok := protocol.ParseInt(it.words[0])
		switch {
		case ok && it.leftMillis == noEnd && value > math.MaxInt64-w.Raise:
			return nil, nil, skipTooHigh
		case ok && it.leftMillis == noEnd:
			if value += w.Raise; value > w.report.Largest || w.report.LargestKey == "" {
				w.report.Largest, w.report.LargestKey = value, it.key
			}
			return w.target.call(it, "counter", mode, 0, []string{strconv.FormatInt(value, 10)}), &w.report.Counters, ""
		case matches(w.Leases, it.key):
		case ok:
			return nil, nil, skipLease
		default:
			return nil, nil, skipNumber
		}
	}
	return w.target.call(it, it.kind, mode, 0, it.words), &w.report.Leases, ""
}

// count counts the outcome of a key.
func (w *work) count(t *Tally, key string, reply int64) {
	switch reply {
	case written:
		t.Copied++
		if w.DryRun && len(w.report.Missing) < shownKeys {
			w.report.Missing = append(w.report.Missing, key)
		}
	case same, longer:
		t.There++
	default:
		w.skip(key, skipOther)
	}
}

// skip records the reason why a key is not copied.
func (w *work) skip(key string, why skip) {
	reason := string(why)
	at, known := w.reasons[reason]
	if !known {
		if len(w.reasons) >= maxReasons {
			reason = "for further reasons"
			at, known = w.reasons[reason]
		}
		if !known {
			at = len(w.report.Skipped)
			w.reasons[reason] = at
			w.report.Skipped = append(w.report.Skipped, Skipped{Reason: reason})
		}
	}
	s := &w.report.Skipped[at]
	if s.Count++; len(s.Keys) < shownKeys {
		s.Keys = append(s.Keys, key)
	}
}

func (w *work) sortReasons() {
	slices.SortFunc(w.report.Skipped, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
}
