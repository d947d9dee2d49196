package fsm

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// recorder is a sink that wants and keeps everything.
type recorder struct {
	replies []protocol.Value
	skipped int
	events  []event.Event
}

func (r *recorder) Wanted(protocol.Incarnation, uint64) bool { return true }

func (r *recorder) Done(_ protocol.Incarnation, _ uint64, replies []protocol.Value, applied bool) {
	r.replies = append(r.replies, replies...)
	if !applied {
		r.skipped++
	}
}

func (r *recorder) Events(events []event.Event) {
	clientless{}.Events(events)
	r.events = append(r.events, events...)
}

// clientless is the sink of a node without clients, which wants nothing.
type clientless struct{}

func (clientless) Wanted(protocol.Incarnation, uint64) bool { return false }

func (clientless) Done(protocol.Incarnation, uint64, []protocol.Value, bool) {
	panic("no client waits")
}

func (clientless) Events(events []event.Event) {
	if len(events) == 0 {
		panic("nothing is told")
	}
}

// listener is a sink of events only.
type listener struct {
	clientless
	events []event.Event
}

func (l *listener) Events(events []event.Event) { l.events = append(l.events, events...) }

// driver is the only client and proposer of a machine.
type driver struct {
	t          testing.TB
	m          *machine
	db         int
	seq        uint64
	nowMillis  int64
	wallOffset int64
	version    byte // of the entries
	// limits are the limits in its entries.
	limits protocol.EntryLimits
}

// testSteps limits a driver's scripts, to less than the default, so that tests are quick.
const testSteps = 5_000_000

func newDriver(t testing.TB) *driver {
	return &driver{
		t: t, m: newMachine(), nowMillis: 1000, wallOffset: 1_700_000_000_000, version: protocol.EntryVersion,
		limits: protocol.EntryLimits{ScriptSteps: testSteps},
	}
}

// request appends the words of a command line to a body.
func request(body []byte, db int, words ...string) []byte {
	words = append([]string(nil), words...)
	words[0] = strings.ToLower(words[0])
	if row, _ := protocol.Find(words); row != nil && strings.Contains(row.Name, "|") {
		words = append([]string{row.Name}, words[2:]...)
	}
	return protocoltest.AppendRequest(body, db, words...)
}

// apply applies a body as the only batch of an entry.
func (d *driver) apply(body []byte) []protocol.Value {
	d.t.Helper()
	return d.record(body).replies
}

// record applies a body as the only batch of an entry, and returns replies and events.
func (d *driver) record(body []byte) *recorder {
	d.t.Helper()
	d.seq++
	entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
	entry.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, d.seq, d.seq, body)
	var r recorder
	require.NoError(d.t, d.m.Apply(entry.Bytes(), &r))
	return &r
}

// do runs a command through the log.
func (d *driver) do(words ...string) protocol.Value {
	d.t.Helper()
	replies := d.apply(request(nil, d.db, words...))
	require.Len(d.t, replies, 1)
	return replies[0]
}

// doLine is [driver.do] for words separated by blanks.
func (d *driver) doLine(line string) protocol.Value {
	d.t.Helper()
	return d.do(strings.Fields(line)...)
}

// read runs a command as a read at the driver's time.
func (d *driver) read(words ...string) (reply protocol.Value, due bool) {
	d.t.Helper()
	replies, _, due, err := d.m.Read(string(request(nil, d.db, words...)), 1, d.nowMillis, d.wallOffset, ReadLong)
	require.NoError(d.t, err)
	if due {
		return protocol.Null, true
	}
	require.Len(d.t, replies, 1)
	return replies[0], false
}

// advance commits a stamp without batches, millis later.
func (d *driver) advance(millis int64) []event.Event {
	d.t.Helper()
	d.nowMillis += millis
	var l listener
	require.NoError(d.t, d.m.Apply(protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits).Bytes(), &l))
	return l.events
}

// wire returns a reply in RESP2.
func wire(v protocol.Value) string { return string(v.AppendTo(nil, protocol.RESP2)) }

// dump returns a machine's snapshot.
func dump(t testing.TB, m *machine) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := m.Snapshot().WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, int64(b.Len()), n)
	return b.Bytes()
}

// line formats a reply on one line: integers as they are, strings quoted, errors in parentheses.
func line(v protocol.Value) string {
	switch v.Kind {
	case protocol.KindNull, protocol.KindNullArray:
		return "nil"
	case protocol.KindSimple:
		return v.Str
	case protocol.KindError:
		return "(" + v.Str + ")"
	case protocol.KindArray:
		return "[" + joined(v.Elems) + "]"
	case protocol.KindMap:
		return "{" + joined(v.Elems) + "}"
	case protocol.KindSet:
		return "~[" + joined(v.Elems) + "]"
	case protocol.KindPairs:
		return "pairs[" + joined(v.Elems) + "]"
	case protocol.KindBulk:
		return strconv.Quote(v.Str)
	case protocol.KindDouble:
		return "(double) " + protocol.FormatDouble(v.Float())
	}
	return strings.TrimRight(string(v.AppendTo(nil, 2)[1:]), "\r\n")
}

func joined(vs []protocol.Value) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = line(v)
	}
	return strings.Join(parts, " ")
}
