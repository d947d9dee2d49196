// Package observe shows operators what clients do: slow commands (SLOWLOG, LATENCY), and every command (MONITOR).
//
// The package promises:
//   - it neither records nor shows passwords;
//   - its memory is bounded, whatever clients send: entries by slowlog-max-len, each by Redis's limits of arguments;
//   - without monitors a command costs one atomic load, and a command that is not slow costs two.
//
// A connection passes the command's row, the arguments and the time to the [Slowlog], and implements [Monitor]. The
// package knows no connections, and starts no goroutine. All methods are safe for concurrent use.
//
// Locks: Slowlog.mu guards the entries, Monitors.mu the clients of MONITOR. Monitors.mu is held while messages are
// posted, so it comes before the locks of a connection.
//
// Start reading at slowlog.go, then monitors.go.
package observe

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// Monitor is a client of MONITOR.
type Monitor interface {
	// Post sends a message. It must not block.
	Post(m *push.Message)
	// Cut closes the connection.
	Cut(why string)
}

// Monitors has the clients of MONITOR, which get the commands of all clients of the node. Without such clients a
// command costs one atomic load.
//
// A command is shown when it is dispatched, and so before the commands that a script calls. The queue of a transaction
// with watched keys is shown after the reply, if it has run.
type Monitors struct {
	count      atomic.Int32
	onInterest func(on bool)

	mu      sync.Mutex // held during onInterest and the methods of Monitor
	clients map[Monitor]struct{}
}

// NewMonitors returns a Monitors without clients.
func NewMonitors() *Monitors { return &Monitors{clients: make(map[Monitor]struct{})} }

// Events shows the commands that scripts called. If a script calls too many to show all, the clients' connections are
// closed, since a gap must not go unnoticed.
func (m *Monitors) Events(events []event.Event) {
	if !m.Watching() {
		return
	}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind != event.Called:
		case e.Payload == "":
			m.cut()
		default:
			m.Show(e.DB, "lua", e.Payload)
		}
	}
}

// OnInterest registers f, which is called when there is a first client and when there is none any more. It must be
// called before Set.
func (m *Monitors) OnInterest(f func(on bool)) { m.onInterest = f }

// Watching reports whether there are clients of MONITOR.
func (m *Monitors) Watching() bool { return m.count.Load() > 0 }

// Set begins or ends showing commands to c.
func (m *Monitors) Set(c Monitor, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if on {
		m.clients[c] = struct{}{}
	} else {
		delete(m.clients, c)
	}
	if n := int32(len(m.clients)); m.count.Swap(n) == 0 || n == 0 {
		m.onInterest(n > 0)
	}
}

// Show shows a command to all clients of MONITOR. who is the address of the sender, or lua. [Quote] makes line.
func (m *Monitors) Show(db int, who, line string) {
	now := time.Now()
	micros := strconv.Itoa(1_000_000 + now.Nanosecond()/1000)[1:]
	message := push.New(protocol.Simple(
		strconv.FormatInt(now.Unix(), 10) + "." + micros + " [" + strconv.Itoa(db) + " " + who + "] " + line))
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.clients {
		c.Post(message)
	}
}

func (m *Monitors) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.clients {
		c.Cut("scripts call too many commands for MONITOR")
	}
}

// Quote formats a command for monitors, without passwords.
func Quote(command *protocol.Command, args [][]byte) string {
	var line []byte
	secret := 0 // the number of the next arguments that are secret
	if command.Name == "auth" {
		secret = len(args)
	}
	for i, arg := range args {
		switch {
		case i == 0:
		case secret > 0:
			arg = []byte("(redacted)")
			secret--
			fallthrough
		default:
			line = append(line, ' ')
			if command.Name == "hello" && strings.EqualFold(string(arg), "auth") {
				secret = 2
			}
		}
		line = protocol.AppendQuoted(line, arg)
	}
	return string(line)
}
