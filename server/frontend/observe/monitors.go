// Package observe shows operators what clients do: the commands that took long (SLOWLOG, LATENCY), and every command as
// it comes (MONITOR).
//
// The package promises:
//   - no password is kept or shown;
//   - what is kept is bounded, whatever clients send: entries by slowlog-max-len, each by Redis's limits of arguments;
//   - a node without a monitor pays one atomic load for a command, and a command that is not slow pays two.
//
// A connection gives the [Slowlog] the command's row, the arguments and the time, and is itself a [Monitor]: the
// package knows no connections, and starts no goroutine. All methods may be called by any goroutine.
//
// Locks: Slowlog.mu guards what is kept, Monitors.mu the clients of MONITOR. Monitors.mu is held while messages are
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
	// Post sends a message, and must not block.
	Post(m *push.Message)
	// Cut closes the connection.
	Cut(why string)
}

// Monitors are the clients of MONITOR on a node: each is sent the commands of the node's clients. A node
// without such clients pays one atomic load for a command.
//
// A command is shown when the node takes the command up, and so before the commands that a script calls. The
// queue of a transaction with watched keys is shown once the reply tells that the queue was run.
type Monitors struct {
	count      atomic.Int32
	onInterest func(on bool)

	mu      sync.Mutex // held while onInterest or a method of a Monitor is called
	clients map[Monitor]struct{}
}

// NewMonitors has no clients yet.
func NewMonitors() *Monitors { return &Monitors{clients: make(map[Monitor]struct{})} }

// Events shows the commands that scripts called. A script that calls more than can be told costs the clients
// their connections, as a gap must not go unnoticed.
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

// OnInterest has f called when the first client comes and when the last has gone. It must be called before Set.
func (m *Monitors) OnInterest(f func(on bool)) { m.onInterest = f }

// Watching reports whether there are clients.
func (m *Monitors) Watching() bool { return m.count.Load() > 0 }

// Set begins or ends the showing of commands to c.
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

// Show shows a command to all clients. who is the address of the sender, or lua, and line is made by [Quote].
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

// Quote is a command as monitors see it. Passwords are not shown.
func Quote(command *protocol.Command, args [][]byte) string {
	var line []byte
	secret := 0 // how many of the next arguments are
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
