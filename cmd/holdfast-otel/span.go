package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/audit"
)

// The names of spans.
const (
	waitSpan = "lock wait"
	holdSpan = "lock hold"
)

// spanner makes spans of lines. A line granted or wait-ended ends a wait, and has the duration of the wait. A line
// released or lost ends a hold. For a native lock this line has the duration of the hold, too. For a stock lock the
// line has the age of the key instead, and a line flushed ends all holds of a database. So the spanner keeps the grants
// of stock locks.
type spanner struct {
	tracer trace.Tracer
	// held are the grants of stock holds that have not ended, by lock and owner, and count is their number.
	held  map[lock]map[string]*audit.Line
	count int
	max   int
}

type lock struct {
	cluster string
	db      int
	key     string
}

// maxGrants bounds the kept grants. A hold whose grant is not kept begins with its key.
const maxGrants = 1 << 17

func newSpanner(provider trace.TracerProvider) *spanner {
	return &spanner{
		tracer: provider.Tracer("github.com/holdfast/holdfast/cmd/holdfast-otel"),
		held:   make(map[lock]map[string]*audit.Line), max: maxGrants,
	}
}

// add takes the next line of the log.
func (s *spanner) add(l *audit.Line) {
	key, owner := l.Names()
	at := lock{l.Cluster, l.DB, key}
	switch l.Event {
	case event.LockGranted, event.LockRenewed: // a wait for several locks renews those that the owner holds already
		if l.WaitedMillis > 0 {
			s.export(waitSpan, l, before(l, l.WaitedMillis))
		}
		if l.Kind == audit.Stock { // which is never renewed
			s.keep(at, owner, l)
		}
	case event.LockWaitEnded:
		s.export(waitSpan, l, before(l, l.WaitedMillis))
	case event.LockReleased, event.LockTaken:
		if l.Count > 0 { // of all owners, who are not named
			s.endAll(at, l)
			return
		}
		grant := s.held[at][owner]
		s.drop(at, owner)
		s.endHold(l, grant)
	case event.LocksFlushed:
		for of := range s.held {
			if of.cluster == l.Cluster && of.db == l.DB {
				s.endAll(of, l)
			}
		}
	case event.LocksSwapped:
		s.swap(l)
	}
}

// keep keeps a grant. It drops the grants of holds that cannot exist beside the new one: the lines of their ends are
// missing, so the times of their ends are unknown.
func (s *spanner) keep(at lock, owner string, l *audit.Line) {
	for other, grant := range s.held[at] {
		if other == owner || !l.Shared || !grant.Shared {
			s.drop(at, other)
		}
	}
	if s.count >= s.max {
		return
	}
	if s.held[at] == nil {
		s.held[at] = make(map[string]*audit.Line)
	}
	s.held[at][owner] = l
	s.count++
}

func (s *spanner) drop(at lock, owner string) {
	owners := s.held[at]
	if _, holds := owners[owner]; !holds {
		return
	}
	s.count--
	if delete(owners, owner); len(owners) == 0 {
		delete(s.held, at)
	}
}

// endAll ends the holds of a lock by a line that names no owner.
func (s *spanner) endAll(at lock, l *audit.Line) {
	for owner, grant := range s.held[at] {
		s.drop(at, owner)
		end := *grant
		end.Time, end.Index, end.N, end.DB = l.Time, l.Index, l.N, at.db
		end.Event, end.Reason, end.Command, end.By, end.Text = l.Event, l.Reason, l.Command, l.By, l.Text
		s.endHold(&end, grant)
	}
}

// swap gives the holds of two databases the other's number: they go on.
func (s *spanner) swap(l *audit.Line) {
	swapped := make(map[lock]map[string]*audit.Line)
	for at, owners := range s.held {
		if at.cluster == l.Cluster && (at.db == l.DB || at.db == l.ToDB) {
			delete(s.held, at)
			at.db = l.DB + l.ToDB - at.db
			swapped[at] = owners
		}
	}
	for at, owners := range swapped {
		s.held[at] = owners
	}
}

// endHold exports the hold that a line ends. grant is nil if it is not kept.
func (s *spanner) endHold(l, grant *audit.Line) {
	from := before(l, l.HeldMillis)
	if grant != nil && !grant.Time.After(l.Time) {
		from = grant.Time
	}
	s.export(holdSpan, l, from)
}

// export exports a span that ends with a line.
func (s *spanner) export(name string, l *audit.Line, from time.Time) {
	ctx := context.WithValue(parentOf(l.Note), lineIDs{}, idsOf(l))
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attributesOf(l)...))
	if isFailure(l) {
		span.SetStatus(codes.Error, l.Reason)
		span.SetAttributes(semconv.ErrorTypeKey.String(l.Reason))
	}
	span.End(trace.WithTimestamp(l.Time))
}

// isFailure reports whether an owner lost a lock, or did not get it although it still wanted it.
func isFailure(l *audit.Line) bool {
	switch l.Event {
	case event.LockTaken, event.LocksFlushed:
		return true
	case event.LockWaitEnded:
		return l.Reason != "cancelled" && l.Reason != "replaced"
	}
	return false
}

func attributesOf(l *audit.Line) (all []attribute.KeyValue) {
	text := func(key attribute.Key, value string) {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	text(semconv.DBNamespaceKey, strconv.Itoa(l.DB))
	text("holdfast.cluster", l.Cluster)
	text("holdfast.kind", l.Kind)
	text("holdfast.key", l.Key)
	text("holdfast.owner", l.Owner)
	if l.Fence != 0 {
		all = append(all, attribute.Int64("holdfast.fence", l.Fence))
	}
	if l.Session != 0 {
		text("holdfast.session", strconv.FormatUint(l.Session, 10))
	}
	text("holdfast.client", l.Client)
	text("holdfast.client.name", l.Name)
	text("holdfast.note", l.Note)
	text("holdfast.reason", l.Reason)
	text("holdfast.command", l.Command)
	text("holdfast.by", l.By)
	text("holdfast.text", l.Text)
	text(semconv.UserNameKey, l.User)
	if host, port, err := net.SplitHostPort(l.Addr); err == nil {
		text(semconv.ClientAddressKey, host)
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, semconv.ClientPort(n))
		}
	}
	return all
}

// traceparentBytes is the length of a traceparent, a header of Trace Context, in its version 00.
const traceparentBytes = 55

// parentOf returns a context with the span that a note names: the note is a traceparent, or has "traceparent=" before
// one.
func parentOf(note string) context.Context {
	if _, after, found := strings.Cut(note, "traceparent="); found {
		note = after[:min(traceparentBytes, len(after))]
	}
	carrier := propagation.MapCarrier{"traceparent": strings.TrimSpace(note)}
	return propagation.TraceContext{}.Extract(context.Background(), carrier)
}

// lineIDs gives spans the IDs in their context, see idsOf.
type lineIDs struct{}

type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// idsOf derives the IDs of a span from the place of its line in the log, so that each reading of the line makes the
// same span. The trace ID of a span without a parent follows from its fence, if it has one, so the wait and the hold of
// a native lock share a trace.
func idsOf(l *audit.Line) (ids spanIDs) {
	line := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %q", l.Cluster, l.Index, l.N, l.DB, l.Key, l.Owner))
	of := line
	if l.Fence != 0 {
		of = sha256.Sum256(fmt.Appendf(nil, "%q fence %d", l.Cluster, l.Fence))
	}
	copy(ids.trace[:], of[:])
	copy(ids.span[:], line[len(ids.trace):])
	return ids
}

// NewIDs returns the IDs of a span without a parent.
func (lineIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(lineIDs{}).(spanIDs)
	return ids.trace, ids.span
}

// NewSpanID returns the ID of a span with a parent.
func (lineIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	ids, _ := ctx.Value(lineIDs{}).(spanIDs)
	return ids.span
}

// before returns the instant so long before a line.
func before(l *audit.Line, millis int64) time.Time {
	return l.Time.Add(-time.Duration(millis) * time.Millisecond)
}
