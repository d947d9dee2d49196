package frontend

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// The way of a command: resolve (dispatch), may it run (mayRun), check (validate), encode (appendRequest), batch
// (addRequest, runBatch), reply (addReplies). One record, the request, goes the whole way. What else is about commands
// stands at a station of it: transactions (enqueue) behind mayRun, monitors (show) and statistics in runCommand, lock
// commands (prepareLock), waiting (takePending) and tracking (track.command) in send.

// dispatch runs a command, queues it, or refuses it.
func (c *conn) dispatch(args [][]byte) {
	defer c.endCommand()
	if c.revoked.Load() || c.outbox.subscribed() && !c.subs.client.Check() {
		c.closing, c.gone = true, true
		return
	}
	command, container := protocol.FindIn(c.table, args)
	if command == nil {
		c.unknown(args, container)
		return
	}
	req := &c.w.request
	req.begin(c.srv.rows[command], args, c.db)
	c.lastCommand = command.Name
	if cause := c.mayRun(req); cause != nil {
		c.reject(req.row, cause)
		return
	}
	switch {
	case c.tx != nil && !req.handler.inMulti:
		c.enqueue(req)
	case c.sentinel() && command.Name == "publish":
		c.reply(req.row, errOnlyHello.Value())
	default:
		c.runCommand(req)
	}
}

// mayRun is why a command must not run now; nil: it may. The checks stand in the order of Redis, because the first
// check that fails decides the error.
func (c *conn) mayRun(req *request) *protocol.Error {
	if req.newest > 0 {
		if cause := refusedByVersion(req, c.srv.backend.Version()); cause != nil {
			return cause
		}
	}
	switch {
	case !req.CheckArity(len(req.args)):
		return req.WrongArity()
	case req.Name == "debug" && !c.srv.cfg.Options.Debug:
		return errDebugDisabled
	case !c.authenticated && !req.Has(protocol.FlagNoAuth):
		return protocol.ErrNoAuth
	case c.tx != nil && req.Has(protocol.FlagNoMulti):
		return errNotInMulti
	}
	if c.rights != nil {
		if cause := c.refusedByRights(req); cause != nil {
			return cause
		}
	}
	switch {
	case c.restricted() && !forSubscribers(req.Command):
		return errRestricted(req.Command)
	case c.monitoring && req.touchesKeys():
		return errMonitors
	}
	return nil
}

// runCommand runs a command outside MULTI. Monitors are shown the command before it runs, or behind its effect on the
// connection.
func (c *conn) runCommand(req *request) {
	req.stats.Calls.Add(1)
	later := req.shownLater()
	if !later {
		c.show(req)
	}
	if req.handler.barrier {
		c.runBatch()
	}
	var v protocol.Value
	switch {
	case req.handler.run != nil:
		req.handler.run(c, req)
	case req.handler.reply != nil:
		began := time.Now()
		c.srv.metrics.NoteRates(began)
		v = req.handler.reply(c, req.args)
		c.srv.timeLocal(&c.profile, req, time.Since(began))
	default:
		c.send(req)
		return
	}
	if later {
		c.show(req)
	}
	if req.handler.reply != nil {
		c.reply(req.row, v)
	}
}

// send takes a command to the cluster: the command is checked and encoded into the batch. A command that may wait is a
// batch of its own, with a ticket that is known before the batch is executed, as the reply may come at any time then.
func (c *conn) send(req *request) {
	cause := c.validate(req)
	s := slot{kind: slotData, row: req.row, judged: req.Route == protocol.Script && c.judges(req.row)}
	switch {
	case cause != nil:
	case req.lock:
		cause = c.prepareLock(&s, req)
	case req.blocks:
		s.kind = slotBlock
	case req.handler.fill != nil && len(req.args) > 1:
		s.from, s.key = req.db, string(req.args[1])
	}
	if cause != nil {
		c.reply(req.row, cause.Value())
		return
	}
	if s.kind == slotBlock {
		c.runBatch()
		s.wait = c.takePending(req)
	}
	c.makeRoom(req.encodedBytes())
	c.w.batch.Body = c.appendQuota(c.w.batch.Body, req.mayWrite())
	c.w.batch.Body = c.appendRequest(c.w.batch.Body, s.wait.number(), req)
	if req.publishes() {
		s.published = newPublished(req)
		c.w.publishes = true
	}
	c.w.batch.Work += c.scriptWork(req)
	c.addRequest(s, c.track.command(c.w, req), req.hints(s.wait.number()))
	if s.kind == slotBlock {
		c.runBatch()
		s.wait.request = nil
	}
}

// refusedByVersion is why a command must not run in a cluster of a version: the command, or one of its options, comes
// with a later one. The error begins as for any other unknown command or option, for clients that ask so what there is.
func refusedByVersion(req *request, version byte) *protocol.Error {
	if req.newest <= version {
		return nil
	}
	what, from := fmt.Sprintf("unknown command '%s': it", req.Name), req.LogVersion
	if from <= version {
		_, later, since := protocol.LaterOption(req.Command, req.args[req.nameArgs:], version)
		if later == nil {
			return nil
		}
		what, from = fmt.Sprintf("syntax error: the option '%s' of '%s'", later.Token, req.Name), since
	}
	return protocol.NewError(fmt.Sprintf("%s comes with version %d of the cluster, which has version %d (see RAFT.STATUS)",
		what, from, version))
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

var (
	errOnlyHello     = protocol.NewError("Only HELLO messages are accepted by Sentinel instances.")
	errNotInMulti    = protocol.NewError("Command not allowed inside a transaction")
	errDebugDisabled = protocol.NewError(`DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.`)
)
