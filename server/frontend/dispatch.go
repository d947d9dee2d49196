package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// dispatch runs a command line, queues it, or refuses it. The checks stand in
// the order of Redis, as the first that fails decides the error.
func (c *conn) dispatch(words [][]byte) {
	defer c.endCommand()
	command, container := protocol.Find(words)
	if command == nil {
		c.unknown(words, container)
		return
	}
	row := c.srv.rows[command]
	c.lastCommand = command.Name
	switch {
	case !command.CheckArity(len(words)):
		c.reject(row, protocol.WrongArity(command.Name))
	case command.Name == "debug" && !c.srv.cfg.Options.Debug:
		c.reject(row, errDebugDisabled)
	case !c.authenticated && !command.Has(protocol.FlagNoAuth):
		c.reject(row, protocol.ErrNoAuth)
	case c.tx != nil && command.Has(protocol.FlagNoMulti):
		c.reject(row, errNotInMulti)
	case c.tx != nil && !row.local.unqueued:
		c.enqueue(row, words)
	default:
		c.perform(row, words)
	}
}

// perform runs a command outside MULTI.
func (c *conn) perform(row *row, words [][]byte) {
	row.calls.Add(1)
	if row.local.last {
		c.flush()
	}
	switch {
	case row.local.act != nil:
		row.local.act(c, words)
	case row.local.answer != nil:
		c.answer(row, row.local.answer(c, words))
	default:
		c.submit(row, words)
	}
}

// submit puts a data command into the batch.
func (c *conn) submit(row *row, words [][]byte) {
	if refusal := c.examine(row, words); refusal != nil {
		c.answer(row, refusal.Value())
		return
	}
	c.makeRoom(words)
	u := &c.w.batch
	u.Body = protocol.AppendRequest(u.Body, c.db, row.Name, words[row.nameWords:])
	c.request(slot{kind: slotData, row: row}, row.write)
}

// reject answers a command that did not get as far as being run or queued. A
// transaction under way is lost by it.
func (c *conn) reject(row *row, cause *protocol.Error) {
	row.rejected.Add(1)
	if c.tx != nil {
		c.tx.aborted = true
	}
	if row.Name == "exec" {
		c.endTransaction()
		cause = protocol.ExecAbortedBy(cause)
	}
	c.answer(nil, cause.Value())
}

// unknown answers a line whose name the table does not have.
func (c *conn) unknown(words [][]byte, container *protocol.Command) {
	if container == nil && crossProtocol(words[0]) {
		c.srv.cfg.Logger.Warn("closed a connection that speaks HTTP: possible cross-protocol attack", "client", c.nc.RemoteAddr())
		// Without a word, as Redis: not even what came before is answered.
		c.closing, c.gone = true, true
		return
	}
	if c.tx != nil {
		c.tx.aborted = true
	}
	_, err := protocol.Resolve(words)
	c.answer(nil, err.Value())
}

// crossProtocol reports whether the line's first word is one that a browser can
// be made to send, and no Redis client would.
func crossProtocol(word []byte) bool {
	return strings.EqualFold(string(word), "post") || strings.EqualFold(string(word), "host:")
}

var (
	errNotInMulti    = refusal("Command not allowed inside a transaction")
	errDebugDisabled = refusal(`DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.`)
)
