package frontend

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// A command passes these stations: resolve (dispatch), permission (mayRun), check (validate), encode (appendRequest),
// batch (addRequest, runBatch), reply (addReplies). One record, the request, goes through all of them. Other parts join
// at a station: transactions (enqueue) after mayRun, monitors (show) and statistics in runCommand, lock commands
// (prepareLock), waiting (takePending) and tracking (track.command) in send.

// dispatch runs a command, queues it, or refuses it.
func (c *conn) dispatch(args [][]byte) {
	defer c.endCommand()
	if c.revoked.Load() || c.outbox.subscribed() && !c.subs.client.Check() {
		c.closing, c.disconnected = true, true
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

// mayRun returns why a command must not run now, or nil. The first failed check decides the error, so the checks have
// the order of Redis.
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

// runCommand runs a command outside MULTI. Monitors see the command before it runs, or after it if shownLater says so.
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

// send checks a command, and encodes it into the batch. A command that may wait gets a ticket and a batch of its own.
// The ticket comes first, since the reply may arrive at any time once the batch runs.
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
	c.w.batch.Work += c.extraWork(req)
	c.addRequest(s, c.track.command(c.w, req), req.hints(s.wait.number()))
	if s.kind == slotBlock {
		c.runBatch()
		s.wait.request = nil
	}
}

// refusedByVersion returns why a cluster of this version does not run a command, or nil: the command, or one of its
// options, needs a later version. The error begins like that for an unknown command or option, since some clients probe
// for features in this way.
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

// unknown replies to a command that is not in the table.
func (c *conn) unknown(args [][]byte, container *protocol.Command) {
	if container == nil && crossProtocol(args[0]) {
		c.srv.cfg.Logger.Warn("closed a connection that speaks HTTP: possible cross-protocol attack", "client",
			c.nc.RemoteAddr())
		// As in Redis there is no reply, not even to the commands before this line.
		c.closing, c.disconnected = true, true
		return
	}
	if c.tx != nil {
		c.tx.aborted = true
	}
	c.reply(nil, protocol.Unknown(args, container).Value())
}

// crossProtocol reports whether a line begins like an HTTP request. A web page can make a browser send one.
func crossProtocol(word []byte) bool {
	return strings.EqualFold(string(word), "post") || strings.EqualFold(string(word), "host:")
}

var (
	errOnlyHello     = protocol.NewError("Only HELLO messages are accepted by Sentinel instances.")
	errNotInMulti    = protocol.NewError("Command not allowed inside a transaction")
	errDebugDisabled = protocol.NewError(`DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.`)
)
