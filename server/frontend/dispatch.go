package frontend

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/mutant"
)

// dispatch runs a command, queues it, or refuses it. The checks stand in the order of Redis,
// because the first check that fails decides the error.
func (c *conn) dispatch(args [][]byte) {
	defer c.endCommand()
	command, container := protocol.FindIn(c.table, args)
	if command == nil {
		c.unknown(args, container)
		return
	}
	row := c.srv.rows[command]
	c.lastCommand = command.Name
	switch {
	case command.LogVersion > 0 && command.LogVersion > c.srv.backend.Version():
		c.reject(row, errLaterVersion(command, c.srv.backend.Version()))
	case !command.CheckArity(len(args)):
		c.reject(row, protocol.WrongArity(command.Name))
	case command.Name == "debug" && !c.srv.cfg.Options.Debug:
		c.reject(row, errDebugDisabled)
	case !c.authenticated && !command.Has(protocol.FlagNoAuth):
		c.reject(row, protocol.ErrNoAuth)
	case c.tx != nil && command.Has(protocol.FlagNoMulti):
		c.reject(row, errNotInMulti)
	case c.restricted() && !forSubscribers(command):
		c.reject(row, errRestricted(command))
	case c.monitoring && touchesKeys(row):
		c.reject(row, errMonitors)
	case c.tx != nil && !row.handler.inMulti:
		c.enqueue(row, args)
	case c.sentinel() && command.Name == "publish":
		c.reply(row, errOnlyHello.Value())
	default:
		c.runCommand(row, args)
	}
}

// runCommand runs a command outside MULTI.
func (c *conn) runCommand(row *row, args [][]byte) {
	row.stats.Calls.Add(1)
	if !row.shownLater() {
		c.show(row, args)
	}
	if row.handler.barrier || row.blocks {
		c.runBatch()
	}
	switch {
	case row.blocks:
		c.block(row, args)
	case row.native:
		c.native(row, args)
	case row.handler.run != nil:
		row.handler.run(c, args)
		c.show(row, args)
	case row.handler.reply != nil:
		began := time.Now()
		c.srv.metrics.NoteRates(began)
		v := row.handler.reply(c, args)
		c.timeLocal(row, args, time.Since(began))
		if row.shownLater() {
			c.show(row, args)
		}
		c.reply(row, v)
	default:
		c.addToBatch(row, args)
	}
}

// addToBatch appends a data command to the batch.
func (c *conn) addToBatch(row *row, args [][]byte) {
	if refusal := c.validate(row, args); refusal != nil {
		c.reply(row, refusal.Value())
		return
	}
	s := slot{kind: slotData, row: row}
	if row.handler.fill != nil && len(args) > 1 {
		s.from, s.key = c.db, string(args[1])
	}
	c.addValid(row, args, s)
}

// addValid is addToBatch for a command that was validated.
func (c *conn) addValid(row *row, args [][]byte, s slot) {
	c.makeRoom(args)
	batch := &c.w.batch
	batch.Body = c.appendCommand(batch.Body, c.db, s.wait.ticket(), row, args)
	if row.publishes() {
		s.published = newPublished(row, args)
		c.w.publishes = true
	}
	write := row.write
	if c.track.on {
		write = c.trackCommand(row, args) || write
	}
	if mutant.EarlyInvalidation {
		c.foretell(row, args)
	}
	c.addRequest(s, write)
}

// appendCommand appends a data command for the state machine, which may wait under a ticket; 0: it may not.
func (c *conn) appendCommand(body []byte, db int, ticket uint64, row *row, args [][]byte) []byte {
	words := args[row.nameArgs:]
	switch {
	case row.native:
		from := protocol.Caller{Conn: c.id, Ticket: ticket, GraceMillis: c.srv.cfg.LockQueueGrace.Milliseconds()}
		if row.Name == "lock.break" && c.srv.logSaysClients() {
			from.Address, from.Name = c.breaker()
		}
		return protocol.AppendNative(body, db, from, row.Name, words)
	case ticket != 0:
		return protocol.AppendBlock(body, db, ticket, row.Name, words)
	case c.srv.fromConn(row, words):
		return protocol.AppendRequestFrom(body, db, uint64(c.id), row.Name, words)
	}
	return protocol.AppendRequest(body, db, row.Name, words)
}

// breaker is the address and the name of the client, as a log entry has them.
func (c *conn) breaker() (address, name string) {
	plain := strings.NewReplacer(" ", "_", "\n", "_")
	return plain.Replace(cmp.Or(c.nc.RemoteAddr().String(), "?")), plain.Replace(c.name())
}

// errLaterVersion refuses a command that comes with a later version of the cluster. It begins as for any other unknown
// command, for clients that ask so what there is.
func errLaterVersion(command *protocol.Command, version byte) *protocol.Error {
	return protocol.NewError(fmt.Sprintf("unknown command '%s': it comes with version %d of the cluster, which has version %d (see RAFT.STATUS)",
		command.Name, command.LogVersion, version))
}

// fromConn reports whether the log says which connection sends a command.
func (s *Server) fromConn(row *row, words [][]byte) bool {
	return row.FromConn && (row.FromConnWith == "" || hasWord(words, row.FromConnWith)) && s.logSaysClients()
}

// hasWord reports whether an option is among the words of a command behind a key and a value.
func hasWord(words [][]byte, option string) bool {
	for _, w := range words[min(2, len(words)):] {
		if len(w) == len(option) && strings.EqualFold(string(w), option) {
			return true
		}
	}
	return false
}

// versionClients is the first version of the cluster whose log says which clients send commands.
const versionClients = 6

// logSaysClients reports whether the cluster's log may say which clients send commands. A cluster does not go back.
func (s *Server) logSaysClients() bool {
	if s.saysClients.Load() {
		return true
	}
	if s.backend.Version() < versionClients {
		return false
	}
	s.saysClients.Store(true)
	return true
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
		c.srv.cfg.Logger.Warn("closed a connection that speaks HTTP: possible cross-protocol attack", "client", c.nc.RemoteAddr())
		// Redis does not answer either, not even the commands before this line.
		c.closing, c.gone = true, true
		return
	}
	if c.tx != nil {
		c.tx.aborted = true
	}
	_, err := c.table.Resolve(args)
	c.reply(nil, err.Value())
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
