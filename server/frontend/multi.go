package frontend

import (
	"bytes"

	"github.com/holdfast/holdfast/protocol"
)

func transactionHandlers() map[string]handler {
	return map[string]handler{
		"multi":   {reply: multi, inMulti: true},
		"exec":    {run: exec, inMulti: true},
		"discard": {reply: discard, inMulti: true},
		"watch":   {run: watch, inMulti: true},
		"unwatch": {reply: unwatch},
	}
}

// transaction is what a connection has queued since MULTI.
type transaction struct {
	// body holds the data commands, count of them.
	body  []byte
	count int
	// steps has an element for each queued command, but only from the moment that one of them is
	// answered by this node; most transactions have none such.
	steps []step
	// queued counts all commands, bytes what they hold in memory.
	queued, bytes int
	// db is the database that SELECT chose for the commands after it.
	db int
	// aborted: a command was refused, so EXEC refuses all.
	aborted bool
}

// step is one queued command: of the body when row is nil and answer Null, else
// run here, or answered when it was queued.
type step struct {
	command  *row
	args     [][]byte
	answered bool
	reply    protocol.Value
}

func multi(c *conn, _ [][]byte) protocol.Value {
	if c.tx != nil {
		return protocol.ErrNestedMulti.Value()
	}
	c.tx = &transaction{db: c.db}
	return protocol.OK
}

func discard(c *conn, _ [][]byte) protocol.Value {
	if c.tx == nil {
		return protocol.ErrDiscardNoMulti.Value()
	}
	c.endTransaction()
	return protocol.OK
}

// endTransaction drops what is queued and watched.
func (c *conn) endTransaction() {
	c.tx = nil
	c.watches.clear()
}

// enqueue queues a command inside MULTI.
func (c *conn) enqueue(row *row, args [][]byte) {
	tx := c.tx
	size := 64
	for _, w := range args {
		size += len(w)
	}
	if tx.bytes+size > c.srv.cfg.MaxQueryBytes {
		c.reject(row, newError("transaction exceeds the query buffer limit"))
		return
	}
	row.calls.Add(1)
	switch {
	case row.Name == "select":
		tx.addStep(queueSelect(tx, args))
	case row.handler.reply != nil:
		tx.addStep(step{command: row, args: copyArgs(args)})
	default:
		refusal := c.validate(row, args)
		if refusal != nil && row.source == 0 {
			c.reject(row, refusal)
			return
		}
		if refusal != nil {
			// Redis finds out about a bad script when it runs, beside the other commands.
			tx.addStep(step{answered: true, reply: refusal.Value()})
			break
		}
		tx.body = protocol.AppendRequest(tx.body, tx.db, row.Name, args[row.nameArgs:])
		tx.count++
		if tx.steps != nil {
			tx.steps = append(tx.steps, step{})
		}
	}
	tx.queued++
	tx.bytes += size
	c.accountQueue(tx.bytes-size, tx.bytes)
	c.reply(nil, protocol.Simple("QUEUED"))
}

// place queues a command that this node answers.
func (tx *transaction) addStep(s step) {
	if tx.steps == nil {
		tx.steps = make([]step, tx.count, tx.count+1)
	}
	tx.steps = append(tx.steps, s)
}

// queueSelect is SELECT inside MULTI: it decides the database of what is queued
// after it, and of the connection once the transaction has run.
func queueSelect(tx *transaction, args [][]byte) step {
	db, refusal, refused := parseDatabase(args[1])
	if refused {
		return step{answered: true, reply: refusal}
	}
	tx.db = db
	return step{answered: true, reply: protocol.OK}
}

// copyArgs makes words outlive the input buffer.
func copyArgs(args [][]byte) [][]byte {
	c := make([][]byte, len(args))
	for i, w := range args {
		c[i] = bytes.Clone(w)
	}
	return c
}

// exec sends the queue off as one request that checks the watched keys first.
func exec(c *conn, _ [][]byte) {
	tx := c.tx
	if tx == nil {
		c.reply(nil, protocol.ErrExecNoMulti.Value())
		return
	}
	if c.watches.pending > 0 {
		c.runBatch()
	}
	watched, lost := c.watches.keys, c.watches.broken
	c.endTransaction()
	switch {
	case tx.aborted:
		c.reply(nil, protocol.ErrExecAbort.Value())
		return
	case lost:
		// What WATCH saw is not known, so it cannot be said to stand.
		c.reply(nil, protocol.NullArray)
		return
	}
	if tx.count == 0 && len(watched) == 0 {
		c.runBatch()
		c.w.tx = tx
		c.finishTransaction(&slot{kind: slotExec, mute: c.replyMode.muted()}, protocol.Array())
		return
	}
	c.makeRoom([][]byte{tx.body})
	batch := &c.w.batch
	batch.Body = protocol.AppendTransaction(batch.Body, c.db, watched, tx.body)
	if tx.steps == nil {
		c.addRequest(slot{kind: slotData, row: c.srv.execRow}, true)
		return
	}
	// What this node has to say comes between the replies, and may change what holds
	// for the commands after EXEC, so nothing else goes into this batch.
	c.w.tx = tx
	c.addRequest(slot{kind: slotExec, row: c.srv.execRow}, true)
	c.runBatch()
}

// finishTransaction places EXEC's reply, running what this node answers in the
// order in which it was queued. Until the end of that, c is as it was at EXEC.
func (c *conn) finishTransaction(s *slot, v protocol.Value) {
	tx := c.w.tx
	c.w.tx = nil
	if sent := c.limitReply(s.row, v); sent.IsError() && !v.IsError() {
		// It ran all the same.
		c.db = tx.db
		v = sent
	}
	if v.Kind != protocol.KindArray || len(v.Elems) != tx.count {
		c.count(s.row, v)
		if !s.mute {
			c.encode(v, c.resp)
		}
		return
	}
	w := c.w
	if !s.mute {
		w.out = protocol.AppendArrayHead(w.out, max(len(tx.steps), tx.count))
	}
	c.db = tx.db
	c.executing = true
	data := v.Elems
	for _, step := range tx.steps {
		reply := step.reply
		switch {
		case step.answered:
		case step.command != nil:
			reply = step.command.handler.reply(c, step.args)
		default:
			reply, data = data[0], data[1:]
		}
		c.count(step.command, reply)
		// Asked again each time, as CLIENT REPLY may be among the steps.
		if !c.replyMode.muted() {
			c.encode(reply, c.resp)
		}
	}
	c.executing = false
}
