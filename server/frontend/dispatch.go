package frontend

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// The way of a command: the reader gives its arguments to dispatch, which finds the row, asks whether the command may
// run, and runs, queues or refuses it. A command for the cluster goes on by send: check, encode into the batch, reply
// later. What else is about commands stands beside that way and is called from here: transactions (enqueue), monitors
// (show), lock commands (prepareLock), waiting (takeTicket), tracking (trackCommand), statistics (the row's).

// dispatch runs a command, queues it, or refuses it.
func (c *conn) dispatch(args [][]byte) {
	defer c.endCommand()
	if c.revoked.Load() {
		c.closing, c.gone = true, true
		return
	}
	command, container := protocol.FindIn(c.table, args)
	if command == nil {
		c.unknown(args, container)
		return
	}
	row := c.srv.rows[command]
	c.lastCommand = command.Name
	if cause := c.mayRun(row, args); cause != nil {
		c.reject(row, cause)
		return
	}
	switch {
	case c.tx != nil && !row.handler.inMulti:
		c.enqueue(row, args)
	case c.sentinel() && command.Name == "publish":
		c.reply(row, errOnlyHello.Value())
	default:
		c.runCommand(row, args)
	}
}

// mayRun is why a command must not run now; nil: it may. The checks stand in the order of Redis, because the first
// check that fails decides the error.
func (c *conn) mayRun(row *row, args [][]byte) *protocol.Error {
	switch {
	case row.LogVersion > 0 && row.LogVersion > c.srv.backend.Version():
		return errLaterVersion(row.Command, c.srv.backend.Version())
	case !row.CheckArity(len(args)):
		return row.WrongArity()
	case row.Name == "debug" && !c.srv.cfg.Options.Debug:
		return errDebugDisabled
	case !c.authenticated && !row.Has(protocol.FlagNoAuth):
		return protocol.ErrNoAuth
	case c.tx != nil && row.Has(protocol.FlagNoMulti):
		return errNotInMulti
	case c.needsVersion(row) && !c.srv.logSaysClients() && !c.srv.backend.KnowsVersion():
		return protocol.ErrBehind
	}
	if c.rights != nil {
		if cause := c.refusedByRights(row, args); cause != nil {
			return cause
		}
	}
	switch {
	case c.restricted() && !forSubscribers(row.Command):
		return errRestricted(row.Command)
	case c.monitoring && touchesKeys(row):
		return errMonitors
	}
	return nil
}

// runCommand runs a command outside MULTI. Monitors are shown the command before it runs, or behind its effect on the
// connection.
func (c *conn) runCommand(row *row, args [][]byte) {
	row.stats.Calls.Add(1)
	later := row.shownLater()
	if !later {
		c.show(row, args)
	}
	if row.handler.barrier {
		c.runBatch()
	}
	var v protocol.Value
	switch {
	case row.handler.run != nil:
		row.handler.run(c, args)
	case row.handler.reply != nil:
		began := time.Now()
		c.srv.metrics.NoteRates(began)
		v = row.handler.reply(c, args)
		c.timeLocal(row, args, time.Since(began))
	default:
		c.send(row, args)
		return
	}
	if later {
		c.show(row, args)
	}
	if row.handler.reply != nil {
		c.reply(row, v)
	}
}

// send takes a command to the cluster: the command is checked and encoded into the batch. A command that may wait is a
// batch of its own, with a ticket that is known before the batch is executed, as the reply may come at any time then.
func (c *conn) send(row *row, args [][]byte) {
	cause := c.validate(row, args)
	s := slot{kind: slotData, row: row, judged: c.judges(row)}
	switch {
	case cause != nil:
	case row.native:
		args, cause = c.prepareLock(&s, args)
	case row.blocks:
		s.kind = slotBlock
	case row.handler.fill != nil && len(args) > 1:
		s.from, s.key = c.db, string(args[1])
	}
	if cause != nil {
		c.reply(row, cause.Value())
		return
	}
	if s.kind == slotBlock {
		c.runBatch()
		s.wait = c.takeTicket(args)
	}
	c.makeRoom(args)
	c.w.batch.Body = c.appendQuota(c.w.batch.Body, mayWrite(row))
	c.w.batch.Body = c.appendCommand(c.w.batch.Body, c.db, s.wait.ticket(), row, args)
	if row.publishes() {
		s.published = newPublished(row, args)
		c.w.publishes = true
	}
	c.addRequest(s, c.trackCommand(row, args))
	if s.kind == slotBlock {
		c.runBatch()
		s.wait.args = nil
	}
}

// errLaterVersion refuses a command that comes with a later version of the cluster. It begins as for any other unknown
// command, for clients that ask so what there is.
func errLaterVersion(command *protocol.Command, version byte) *protocol.Error {
	return protocol.NewError(fmt.Sprintf("unknown command '%s': it comes with version %d of the cluster, which has "+
		"version %d (see RAFT.STATUS)",
		command.Name, command.LogVersion, version))
}

// reject answers a command that failed a check of dispatch, and aborts the open transaction.
func (c *conn) reject(row *row, cause *protocol.Error) {
	row.stats.Rejected.Add(1)
	if c.tx != nil {
		c.tx.aborted = true
	}
	if row.Name == "exec" {
		c.endTransaction()
		cause = protocol.ExecAbortedBy(cause)
	}
	c.reply(nil, cause.Value())
}

// unknown answers a command that is not in the table.
func (c *conn) unknown(args [][]byte, container *protocol.Command) {
	if container == nil && crossProtocol(args[0]) {
		c.srv.cfg.Logger.Warn("closed a connection that speaks HTTP: possible cross-protocol attack", "client",
			c.nc.RemoteAddr())
		// Redis does not answer either, not even the commands before this line.
		c.closing, c.gone = true, true
		return
	}
	if c.tx != nil {
		c.tx.aborted = true
	}
	c.reply(nil, protocol.Unknown(args, container).Value())
}

// crossProtocol reports whether a line begins like an HTTP request, which a web page can make a
// browser send.
func crossProtocol(word []byte) bool {
	return strings.EqualFold(string(word), "post") || strings.EqualFold(string(word), "host:")
}

// sentinel reports whether the client came through the port for Sentinel's clients.
func (c *conn) sentinel() bool { return c.table == protocol.Sentinel() }

var (
	errOnlyHello     = protocol.NewError("Only HELLO messages are accepted by Sentinel instances.")
	errNotInMulti    = protocol.NewError("Command not allowed inside a transaction")
	errDebugDisabled = protocol.NewError(`DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.`)
)
