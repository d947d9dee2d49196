package frontend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

func slowlogHandlers() map[string]handler {
	return map[string]handler{
		"slowlog|get":   {reply: slowlogGet, barrier: true},
		"slowlog|len":   {reply: func(c *conn, _ [][]byte) protocol.Value { return protocol.Integer(int64(c.srv.slow.count())) }, barrier: true},
		"slowlog|reset": {reply: slowlogReset, barrier: true},
	}
}

// slowlog remembers the latest commands that took long, and slow events for LATENCY.
type slowlog struct {
	// aboveMicros, mostEntries and monitorMillis are slowlog-log-slower-than, slowlog-max-len and
	// latency-monitor-threshold.
	aboveMicros, mostEntries, monitorMillis atomic.Int64

	mu      sync.Mutex
	nextID  int64
	entries []slowEntry // the newest last
	events  map[string]*slowEvents
}

// slowEntry is a command that took long.
type slowEntry struct {
	id         int64
	at         time.Time
	took       time.Duration
	words      []string
	addr, name string
}

// Redis's defaults and limits.
const (
	defaultSlowMicros  = 10_000
	defaultSlowEntries = 128
	// largestSlowLog bounds slowlog-max-len, or the log could take all memory.
	largestSlowLog = 4096
	mostSlowWords  = 32
	mostSlowBytes  = 128
)

func (l *slowlog) init() {
	l.aboveMicros.Store(defaultSlowMicros)
	l.mostEntries.Store(defaultSlowEntries)
	l.events = make(map[string]*slowEvents)
}

// isSlow reports whether a time is to be noted.
func (l *slowlog) isSlow(d time.Duration) bool {
	above, monitor := l.aboveMicros.Load(), l.monitorMillis.Load()
	return above >= 0 && d.Microseconds() >= above || monitor > 0 && d.Milliseconds() >= monitor
}

// noteSlowRequest notes the first request of a batch's body, and returns the rest.
func (c *conn) noteSlowRequest(row *row, body string, d time.Duration) (rest string) {
	var r protocol.Request
	rest, err := protocol.NextRequest(body, &r)
	if err != nil || len(r.Args) == 0 {
		return ""
	}
	given := r.Args[1:]
	if row == c.srv.execRow {
		given = nil // the queue, which no client sent as words
	}
	c.noteSlow(row, shorten(row, append(strings.Split(row.Name, "|"), given...)), d)
	return rest
}

// noteSlow notes a command that took long.
func (c *conn) noteSlow(row *row, words []string, d time.Duration) {
	c.mu.Lock()
	name := c.shown.name
	c.mu.Unlock()
	c.srv.slow.note(row, slowEntry{at: time.Now(), took: d, words: words, addr: c.nc.RemoteAddr().String(), name: name})
}

// shorten copies the words of a command, and cuts long words and many words as Redis does. Passwords are
// not kept.
func shorten[W ~string | ~[]byte](row *row, all []W) []string {
	kept := make([]string, min(len(all), mostSlowWords))
	for i := range kept {
		switch {
		case i == mostSlowWords-1 && len(all) > mostSlowWords:
			kept[i] = fmt.Sprintf("... (%d more arguments)", len(all)-i)
		case i > 0 && (row.Name == "auth" || row.Name == "hello"):
			kept[i] = "(redacted)"
		case len(all[i]) > mostSlowBytes:
			kept[i] = fmt.Sprintf("%s... (%d more bytes)", all[i][:mostSlowBytes], len(all[i])-mostSlowBytes)
		default:
			kept[i] = strings.Clone(string(all[i]))
		}
	}
	return kept
}

func (l *slowlog) note(row *row, e slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// EXEC is skipped in Redis, which times the commands of the queue one by one.
	skipped := row.Has(protocol.FlagSkipSlowlog) && row.Name != "exec"
	if above := l.aboveMicros.Load(); above >= 0 && e.took.Microseconds() >= above && !skipped {
		e.id = l.nextID
		l.nextID++
		l.entries = append(l.entries, e)
		l.trim()
	}
	if monitor := l.monitorMillis.Load(); monitor > 0 && e.took.Milliseconds() >= monitor {
		kind := "command"
		if row.Has(protocol.FlagFast) {
			kind = "fast-command"
		}
		l.noteEvent(kind, e.at, e.took)
	}
}

// trim forgets the oldest entries. The caller holds l.mu.
func (l *slowlog) trim() {
	if over := len(l.entries) - int(min(l.mostEntries.Load(), largestSlowLog)); over > 0 {
		l.entries = slices.Clone(l.entries[over:])
	}
}

func (l *slowlog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func slowlogReset(c *conn, _ [][]byte) protocol.Value {
	l := &c.srv.slow
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
	return protocol.OK
}

func slowlogGet(c *conn, args [][]byte) protocol.Value {
	n := int64(10)
	if len(args) > 3 {
		return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try SLOWLOG HELP.")
	}
	if len(args) == 3 {
		var ok bool
		if n, ok = protocol.ParseInt(string(args[2])); !ok || n < -1 || n > math.MaxInt32 {
			return protocol.Err("count should be greater than or equal to -1")
		}
	}
	l := &c.srv.slow
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	var all []protocol.Value
	for i := range int(n) {
		e := &l.entries[len(l.entries)-1-i]
		all = append(all, protocol.Array(protocol.Integer(e.id), protocol.Integer(e.at.Unix()), protocol.Integer(e.took.Microseconds()),
			protocol.Strings(e.words...), protocol.Bulk(e.addr), protocol.Bulk(e.name)))
	}
	return protocol.Array(all...)
}
