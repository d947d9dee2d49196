package frontend

import (
	"encoding/binary"

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

// endTransaction drops the queue and the watched keys.
func (c *conn) endTransaction() {
	c.tx = nil
	c.watches.clear()
}

// enqueue queues a command inside MULTI.
func (c *conn) enqueue(req *request) {
	tx := c.tx
	req.db = tx.db
	size := 64 + req.size(0)
	if tx.bytes+size > c.srv.cfg.MaxQueryBytes {
		c.reject(req.row, protocol.NewError("transaction exceeds the query buffer limit"))
		return
	}
	req.stats.Calls.Add(1)
	switch {
	case req.Name == "select":
		tx.addStep(c.srv.queueSelect(tx, req.args[1]))
	case req.handler.reply != nil || req.handler.queued:
		tx.addStep(step{request: req.clone()})
	default:
		refusal := c.validate(req)
		if refusal != nil && req.source == 0 {
			c.reject(req.row, refusal)
			return
		}
		if refusal != nil {
			// Redis reports a bad script when it runs, among the replies of the other commands.
			tx.addStep(step{answered: true, reply: refusal.Value()})
			break
		}
		if req.lock {
			size += tx.addLock(c, req, req.takeHeartbeat())
		}
		tx.body = c.appendRequest(tx.body, 0, req)
		switch {
		case c.judges(req.row):
			size += c.rulesBytes()
			tx.addStep(step{judged: req.Route == protocol.Script})
		case req.publishes():
			tx.addStep(step{published: newPublished(req)})
		case tx.steps != nil:
			tx.steps = append(tx.steps, step{})
		}
		tx.count++
		tx.hints = tx.hints.And(req.hints(0))
		tx.work += c.extraWork(req)
		if c.track.on && !c.track.bcast {
			size += tx.looks.add(req)
		}
	}
	size += tx.showQueued(c.srv.cfg.Monitors, req)
	tx.caching = tx.caching || req.Name == "client|caching"
	tx.queued++
	tx.bytes += size
	c.accountQueue(tx.bytes-size, tx.bytes)
	c.reply(nil, protocol.Simple("QUEUED"))
}

// addStep queues a command that this node answers.
func (tx *transaction) addStep(s step) {
	if tx.steps == nil {
		tx.steps = make([]step, tx.count, tx.count+1)
	}
	tx.steps = append(tx.steps, s)
}

// queueSelect queues a SELECT. It selects the database of the commands that are queued next and, after EXEC, of the
// connection.
func (s *Server) queueSelect(tx *transaction, number []byte) step {
	db, refusal, refused := s.parseDatabase(number)
	if refused {
		return step{answered: true, reply: refusal}
	}
	tx.db = db
	return step{answered: true, reply: protocol.OK}
}

// exec turns the queue into one request, which checks the watched keys first.
func exec(c *conn, req *request) {
	tx := c.tx
	if tx == nil {
		tx = &transaction{db: c.db}
		tx.noteExec(c.srv.cfg.Monitors, req)
		tx.showExec(c.srv.cfg.Monitors, c.addr, c.db, true)
		c.reply(nil, protocol.ErrExecNoMulti.Value())
		return
	}
	if c.watches.pending > 0 {
		c.runBatch()
	}
	watched, lost := c.watches.keys, c.watches.broken
	c.endTransaction()
	tx.noteExec(c.srv.cfg.Monitors, req)
	if tx.aborted || lost || len(watched) == 0 {
		tx.showExec(c.srv.cfg.Monitors, c.addr, c.db, !tx.aborted && !lost)
		tx.shown = nil
	}
	switch {
	case tx.aborted:
		c.reply(nil, protocol.ErrExecAbort.Value())
		return
	case lost:
		// The marks are unknown, so the keys may have changed.
		c.reply(nil, protocol.NullArray)
		return
	}
	if tx.count == 0 && len(watched) == 0 {
		c.runBatch()
		c.w.tx = tx
		c.finishTransaction(&slot{kind: slotExec, mute: c.replyMode.muted()}, protocol.Array())
		return
	}
	if len(tx.body) > fullDiskBytes && c.srv.backend.DiskFull() {
		c.reply(nil, protocol.ExecAbortedBy(protocol.ErrDiskFull).Value())
		return
	}
	c.makeRoom(len(tx.body) + binary.MaxVarintLen32)
	if c.track.on {
		if !c.track.caches() && !tx.caching {
			tx.looks = looks{}
		}
		c.track.note(c.w, &tx.looks)
	}
	batch := &c.w.batch
	batch.Body = c.appendQuota(batch.Body, true)
	batch.Body = protocol.AppendTransaction(batch.Body, c.db, watched, tx.body)
	batch.Work += tx.work
	s := slot{kind: slotData, row: req.row, lock: tx.lockCommand()}
	if len(tx.shown) > 0 {
		s.shown = tx
	}
	if tx.steps == nil {
		c.addRequest(s, true, tx.hints)
		if s.shown != nil {
			c.runBatch() // the monitors see it before later commands
		}
		return
	}
	// The replies of this node are merged with those of the batch, and may change settings of the commands after EXEC. So
	// the batch ends here.
	c.w.tx, c.w.publishes = tx, true // perhaps
	s.kind = slotExec
	c.addRequest(s, true, tx.hints)
	c.runBatch()
}

// answerPublished computes the replies to PUBLISH, before a SUBSCRIBE among the steps takes effect: the messages were
// sent before.
func (tx *transaction) answerPublished(s *Server, data []protocol.Value) {
	i := 0
	for _, step := range tx.steps {
		if step.answered || step.request != nil {
			continue
		}
		if step.published != nil {
			data[i] = step.published.answer(s, data[i])
		}
		i++
	}
}

// finishTransaction places the reply to EXEC, and runs the commands of this node, in the order of the queue.
func (c *conn) finishTransaction(s *slot, v protocol.Value) {
	tx := c.w.tx
	c.w.tx = nil
	if sent := c.srv.limitReply(s.row, v); sent.IsError() && !v.IsError() {
		// The transaction has run nevertheless.
		c.db = tx.db
		v = sent
	}
	if v.Kind != protocol.KindArray || len(v.Elems) != tx.count {
		c.srv.count(s.row, v)
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
	tx.answerPublished(c.srv, data)
	for _, step := range tx.steps {
		reply := step.reply
		switch {
		case step.answered:
		case step.request != nil && step.request.handler.queued:
			step.request.handler.run(c, step.request)
			continue
		case step.request != nil:
			reply = step.request.handler.reply(c, step.request.args)
		default:
			reply, data = data[0], data[1:]
			if step.judged {
				reply = c.noteRefusals(reply)
			}
		}
		c.srv.count(step.row(), reply)
		// CLIENT REPLY may be among the steps.
		if !c.replyMode.muted() {
			c.encode(reply, c.resp)
		}
	}
	c.executing = false
}

// reject replies to a command that failed a check, and aborts the open transaction.
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
