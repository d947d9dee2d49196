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

// errMonitors is the text of Redis, which treats monitors as replicas.
var errMonitors = protocol.NewError("Replica can't interact with the keyspace")

// touchesKeys reports whether a monitor must not send the command.
func (r *row) touchesKeys() bool {
	return r.Has(protocol.FlagWrite) || r.Has(protocol.FlagReadOnly) || r.publishes() || r.runsScript()
}

// runsScript reports whether the command is EVAL or one of its variants.
func (r *row) runsScript() bool { return strings.HasPrefix(r.Name, "eval") }

// shownLater reports whether monitors see a command of this node after it has run, for instance with the database that
// it selects. They see a command that may wait before it runs.
func (r *row) shownLater() bool {
	return r.handler.run != nil || r.handler.reply != nil && !r.handler.barrier
}

// show shows a command to the monitors. For EXEC see [transaction.showExec].
func (c *conn) show(req *request) {
	if m := c.srv.cfg.Monitors; m.Watching() && !req.Has(protocol.FlagAdmin) && req.row != c.srv.execRow {
		m.Show(c.db, c.addr.String(), observe.Quote(req.Command, req.args))
	}
}

// shownCommand is a queued command of a transaction.
type shownCommand struct {
	db    int
	words string
}

// showQueued records a queued command for the monitors, and returns its memory.
func (tx *transaction) showQueued(m *observe.Monitors, req *request) (bytes int) {
	if !m.Watching() || req.Has(protocol.FlagAdmin) {
		return 0
	}
	words := observe.Quote(req.Command, req.args)
	tx.shown = append(tx.shown, shownCommand{tx.db, words})
	return len(words) + 32
}

// noteExec records EXEC after the queued commands, or drops all if there are no monitors any more.
func (tx *transaction) noteExec(m *observe.Monitors, req *request) {
	if m.Watching() {
		tx.shown = append(tx.shown, shownCommand{tx.db, observe.Quote(req.Command, req.args)})
	} else {
		tx.shown = nil
	}
}

// showExec shows the queued commands, if they ran, and then EXEC. Alone, EXEC has the database of the connection.
func (tx *transaction) showExec(m *observe.Monitors, addr net.Addr, db int, ran bool) {
	shown := tx.shown
	if !ran && len(shown) > 0 {
		shown = []shownCommand{{db, shown[len(shown)-1].words}}
	}
	for _, s := range shown {
		m.Show(s.db, addr.String(), s.words)
	}
}
