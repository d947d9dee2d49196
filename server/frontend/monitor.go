package frontend

import (
	"net"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/observe"
)

func monitorHandlers() map[string]handler {
	return map[string]handler{"monitor": {reply: monitor}}
}

func monitor(c *conn, _ [][]byte) protocol.Value {
	switch {
	case c.executing:
		return protocol.Err("MONITOR isn't allowed for DENY BLOCKING client")
	case c.monitoring:
		return protocol.None // as in Redis
	}
	c.monitoring = true
	c.srv.cfg.Monitors.Set(c, true)
	return protocol.OK
}

func (c *conn) stopMonitoring() {
	if c.monitoring {
		c.monitoring = false
		c.srv.cfg.Monitors.Set(c, false)
	}
}

// errMonitors is Redis's error, to which a monitor is a kind of replica.
var errMonitors = protocol.NewError("Replica can't interact with the keyspace")

// touchesKeys reports whether a monitor may not send the command.
func (r *row) touchesKeys() bool {
	return r.Has(protocol.FlagWrite) || r.Has(protocol.FlagReadOnly) || r.publishes() || r.runsScript()
}

// runsScript reports whether the command is EVAL or one of its variants.
func (r *row) runsScript() bool { return strings.HasPrefix(r.Name, "eval") }

// shownLater reports whether monitors are shown a command of this node behind its effect on the connection,
// such as another database. Commands that may wait are shown before.
func (r *row) shownLater() bool {
	return r.handler.run != nil || r.handler.reply != nil && !r.handler.barrier
}

// show shows the monitors a command. EXEC comes behind the commands of the queue, see [transaction.showExec].
func (c *conn) show(req *request) {
	if m := c.srv.cfg.Monitors; m.Watching() && !req.Has(protocol.FlagAdmin) && req.row != c.srv.execRow {
		m.Show(c.db, c.addr.String(), observe.Quote(req.Command, req.args))
	}
}

// shownCommand is a command of a transaction's queue.
type shownCommand struct {
	db    int
	words string
}

// showQueued notes a command for monitors that will see it when EXEC runs, and returns the memory for that.
func (tx *transaction) showQueued(m *observe.Monitors, req *request) (bytes int) {
	if !m.Watching() || req.Has(protocol.FlagAdmin) {
		return 0
	}
	words := observe.Quote(req.Command, req.args)
	tx.shown = append(tx.shown, shownCommand{tx.db, words})
	return len(words) + 32
}

// noteExec puts EXEC behind the queue, or there is nothing to show.
func (tx *transaction) noteExec(m *observe.Monitors, req *request) {
	if m.Watching() {
		tx.shown = append(tx.shown, shownCommand{tx.db, observe.Quote(req.Command, req.args)})
	} else {
		tx.shown = nil
	}
}

// showExec shows EXEC at the database of the connection, and before it the commands of the queue if they ran.
func (tx *transaction) showExec(m *observe.Monitors, addr net.Addr, db int, ran bool) {
	shown := tx.shown
	if !ran && len(shown) > 0 {
		shown = []shownCommand{{db, shown[len(shown)-1].words}}
	}
	for _, s := range shown {
		m.Show(s.db, addr.String(), s.words)
	}
}
