package observe

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

// Reply returns the reply to a command about slow commands.
type Reply func(l *Slowlog, args [][]byte) protocol.Value

// Replies returns the commands, by the names of their rows in the command table. The earlier commands of the pipeline
// run before each, so that it has them.
func Replies() map[string]Reply {
	return map[string]Reply{
		"latency|doctor":  (*Slowlog).latencyDoctor,
		"latency|graph":   (*Slowlog).latencyGraph,
		"latency|history": (*Slowlog).latencyHistory,
		"latency|latest":  (*Slowlog).latencyLatest,
		"latency|reset":   (*Slowlog).latencyReset,
		"slowlog|get":     (*Slowlog).get,
		"slowlog|len":     func(l *Slowlog, _ [][]byte) protocol.Value { return protocol.Integer(int64(l.count())) },
		"slowlog|reset":   (*Slowlog).reset,
	}
}

// Slowlog has the latest slow commands, and slow events for LATENCY. Create it with [NewSlowlog].
type Slowlog struct {
	// AboveMicros, MaxEntries and MonitorMillis are slowlog-log-slower-than, slowlog-max-len and
	// latency-monitor-threshold.
	AboveMicros, MaxEntries, MonitorMillis atomic.Int64

	mu      sync.Mutex
	nextID  int64
	entries []numbered // a ring: from oldest to the end, and then from the start
	oldest  int
	events  map[string]*slowEvents
}

// Entry is a slow command.
type Entry struct {
	At   time.Time
	Took time.Duration
	// Args has the arguments, shortened by [Shorten].
	Args []string
	// Addr and Name are those of the client.
	Addr, Name string
}

type numbered struct {
	Entry
	id int64
}

// The defaults and limits of Redis.
const (
	defaultSlowMicros  = 10_000
	defaultSlowEntries = 128
	// maxSlowEntries bounds slowlog-max-len, so that the log cannot use up the memory.
	maxSlowEntries  = 4096
	maxSlowArgs     = 32
	maxSlowArgBytes = 128
)

// NewSlowlog returns a log with Redis's defaults.
func NewSlowlog() *Slowlog {
	l := &Slowlog{events: make(map[string]*slowEvents)}
	l.AboveMicros.Store(defaultSlowMicros)
	l.MaxEntries.Store(defaultSlowEntries)
	return l
}

// IsSlow reports whether a time must be recorded.
func (l *Slowlog) IsSlow(d time.Duration) bool {
	above, monitor := l.AboveMicros.Load(), l.MonitorMillis.Load()
	return above >= 0 && d.Microseconds() >= above || monitor > 0 && d.Milliseconds() >= monitor
}

// FirstRequest returns the arguments of the first request in a batch's body, shortened by [Shorten], and the rest of
// the body.
func FirstRequest(command *protocol.Command, body string) (args []string, rest string) {
	var r protocol.Request
	rest, err := protocol.NextRequest(body, &r)
	if err != nil || len(r.Args) == 0 {
		return nil, ""
	}
	given := r.Args[1:]
	if command.Name == "exec" {
		given = nil // the queue is no word of the client
	}
	return Shorten(command, append(strings.Split(command.Name, "|"), given...)), rest
}

// Shorten copies the arguments of a command, without passwords. As in Redis it cuts long arguments and long lists.
func Shorten[A ~string | ~[]byte](command *protocol.Command, args []A) []string {
	kept := make([]string, min(len(args), maxSlowArgs))
	for i := range kept {
		switch {
		case i == maxSlowArgs-1 && len(args) > maxSlowArgs:
			kept[i] = fmt.Sprintf("... (%d more arguments)", len(args)-i)
		case i > 0 && (command.Name == "auth" || command.Name == "hello"):
			kept[i] = "(redacted)"
		case len(args[i]) > maxSlowArgBytes:
			kept[i] = fmt.Sprintf("%s... (%d more bytes)", args[i][:maxSlowArgBytes], len(args[i])-maxSlowArgBytes)
		default:
			kept[i] = strings.Clone(string(args[i]))
		}
	}
	return kept
}

// Note records a slow call of a command.
func (l *Slowlog) Note(command *protocol.Command, e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Redis skips EXEC, and times the commands of its queue.
	skipped := command.Has(protocol.FlagSkipSlowlog) && command.Name != "exec"
	if above := l.AboveMicros.Load(); above >= 0 && e.Took.Microseconds() >= above && !skipped {
		l.add(numbered{e, l.nextID})
		l.nextID++
	}
	if monitor := l.MonitorMillis.Load(); monitor > 0 && e.Took.Milliseconds() >= monitor {
		kind := "command"
		if command.Has(protocol.FlagFast) {
			kind = "fast-command"
		}
		l.noteEvent(kind, e.At, e.Took)
	}
}

// add adds an entry, and drops the oldest beyond the limit. A full log copies nothing, since with a slow disk every
// command is added. The caller holds l.mu.
func (l *Slowlog) add(e numbered) {
	limit := int(min(l.MaxEntries.Load(), maxSlowEntries))
	if len(l.entries) == limit && limit > 0 {
		l.entries[l.oldest] = e
		l.oldest = (l.oldest + 1) % limit
		return
	}
	if l.oldest > 0 { // the limit has changed
		l.entries = slices.Concat(l.entries[l.oldest:], l.entries[:l.oldest])
		l.oldest = 0
	}
	l.entries = append(l.entries, e)
	if over := len(l.entries) - limit; over > 0 {
		l.entries = slices.Clone(l.entries[over:])
	}
}

func (l *Slowlog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *Slowlog) reset([][]byte) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.oldest = nil, 0
	return protocol.OK
}

func (l *Slowlog) get(args [][]byte) protocol.Value {
	n := int64(10)
	if len(args) > 3 {
		return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) +
			"'. Try SLOWLOG HELP.")
	}
	if len(args) == 3 {
		var ok bool
		if n, ok = protocol.ParseInt(string(args[2])); !ok || n < -1 || n > math.MaxInt32 {
			return protocol.Err("count should be greater than or equal to -1")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	var all []protocol.Value
	for i := range int(n) {
		e := &l.entries[(l.oldest+len(l.entries)-1-i)%len(l.entries)]
		all = append(all, protocol.Array(protocol.Integer(e.id), protocol.Integer(e.At.Unix()),
			protocol.Integer(e.Took.Microseconds()),
			protocol.Strings(e.Args...), protocol.Bulk(e.Addr), protocol.Bulk(e.Name)))
	}
	return protocol.Array(all...)
}
