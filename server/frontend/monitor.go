package frontend

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

func monitorHandlers() map[string]handler {
	return map[string]handler{"monitor": {reply: monitor}}
}

// Monitors are the clients of MONITOR on a node: each is sent the commands of the node's clients. A node
// without such clients pays one atomic load for a command.
//
// A command is shown when the node takes the command up, and so before the commands that a script calls. The
// queue of a transaction with watched keys is shown once the reply tells that the queue was run.
type Monitors struct {
	count      atomic.Int32
	onInterest func(on bool)

	mu      sync.Mutex // held while onInterest or [conn.Post] is called
	clients map[*conn]struct{}
}

// NewMonitors has no clients yet.
func NewMonitors() *Monitors { return &Monitors{clients: make(map[*conn]struct{})} }

// Events shows the commands that scripts called. A script that calls more than can be told costs the clients
// their connections, as a gap must not go unnoticed.
func (m *Monitors) Events(events []fsm.Event) {
	if !m.watch() {
		return
	}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind != fsm.Called:
		case e.Payload == "":
			m.cut()
		default:
			m.tell(e.DB, "lua", e.Payload)
		}
	}
}

func (m *Monitors) watch() bool { return m.count.Load() > 0 }

// set begins or ends the showing of commands to c.
func (m *Monitors) set(c *conn, on bool) {
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

// tell shows a command to all clients. who is the address of the sender, or lua.
func (m *Monitors) tell(db int, who, words string) {
	now := time.Now()
	micros := strconv.Itoa(1_000_000 + now.Nanosecond()/1000)[1:]
	message := push.New(protocol.Simple(
		strconv.FormatInt(now.Unix(), 10) + "." + micros + " [" + strconv.Itoa(db) + " " + who + "] " + words))
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

func monitor(c *conn, _ [][]byte) protocol.Value {
	switch {
	case c.executing:
		return protocol.Err("MONITOR isn't allowed for DENY BLOCKING client")
	case c.monitoring:
		return protocol.None // as in Redis
	}
	c.monitoring = true
	c.srv.cfg.Monitors.set(c, true)
	return protocol.OK
}

func (c *conn) stopMonitoring() {
	if c.monitoring {
		c.monitoring = false
		c.srv.cfg.Monitors.set(c, false)
	}
}

// errMonitors is Redis's error, to which a monitor is a kind of replica.
var errMonitors = protocol.NewError("Replica can't interact with the keyspace")

// touchesKeys reports whether a monitor may not send the command.
func touchesKeys(row *row) bool {
	return row.Has(protocol.FlagWrite) || row.Has(protocol.FlagReadOnly) || row.publishes() || row.runsScript()
}

// runsScript reports whether the command is EVAL or one of its variants.
func (r *row) runsScript() bool { return strings.HasPrefix(r.Name, "eval") }

// shownLater reports whether monitors are shown a command of this node behind its effect on the connection,
// such as another database. Commands that may wait are shown before.
func (r *row) shownLater() bool {
	return r.handler.run != nil || r.handler.reply != nil && !r.handler.barrier
}

// show shows the monitors a command. EXEC comes behind the commands of the queue, see [conn.showExec].
func (c *conn) show(row *row, args [][]byte) {
	if m := c.srv.cfg.Monitors; m.watch() && !row.Has(protocol.FlagAdmin) && row != c.srv.execRow {
		m.tell(c.db, c.nc.RemoteAddr().String(), quoteWords(row, args))
	}
}

// shownCommand is a command of a transaction's queue.
type shownCommand struct {
	db    int
	words string
}

// showQueued notes a command for monitors that will see it when EXEC runs, and returns the memory for that.
func (c *conn) showQueued(row *row, args [][]byte) (bytes int) {
	if !c.srv.cfg.Monitors.watch() || row.Has(protocol.FlagAdmin) {
		return 0
	}
	words := quoteWords(row, args)
	c.tx.shown = append(c.tx.shown, shownCommand{c.tx.db, words})
	return len(words) + 32
}

// noteExec puts EXEC behind the queue, or there is nothing to show.
func (c *conn) noteExec(tx *transaction, args [][]byte) {
	if c.srv.cfg.Monitors.watch() {
		tx.shown = append(tx.shown, shownCommand{tx.db, quoteWords(c.srv.execRow, args)})
	} else {
		tx.shown = nil
	}
}

// showExec shows EXEC, and before it the commands of the queue if they ran.
func (c *conn) showExec(tx *transaction, ran bool) {
	shown := tx.shown
	if !ran && len(shown) > 0 {
		shown = []shownCommand{{c.db, shown[len(shown)-1].words}}
	}
	for _, s := range shown {
		c.srv.cfg.Monitors.tell(s.db, c.nc.RemoteAddr().String(), s.words)
	}
}

// quoteWords are the words as monitors see them. Passwords are not shown.
func quoteWords(row *row, args [][]byte) string {
	var line []byte
	secret := 0 // how many of the next words are
	if row.Name == "auth" {
		secret = len(args)
	}
	for i, w := range args {
		switch {
		case i == 0:
		case secret > 0:
			w = []byte("(redacted)")
			secret--
			fallthrough
		default:
			line = append(line, ' ')
			if row.Name == "hello" && strings.EqualFold(string(w), "auth") {
				secret = 2
			}
		}
		line = protocol.AppendQuoted(line, w)
	}
	return string(line)
}
