package frontend

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/replica"
)

// Replies are sent in the order of the commands, but the reply of a data command is known only after its batch has run.
// So each command has a slot. The bytes of a local reply stay in work.local until the data commands before it have
// replies.

// batchBytes is the size above which a pipeline is split into several batches, so that no client fills a log entry that
// all others wait for. Only a single command can be larger.
const batchBytes = 1 << 20

// localBytes bounds the local replies that wait for the batch. If a reply does not fit, the batch is executed first.
const localBytes = clientChunk

// addRequest reserves a slot for the request that was just appended to the batch's body.
func (c *conn) addRequest(s slot, write bool, hints protocol.Hints) {
	w := c.w
	s.mute, s.resp = c.replyMode.muted(), uint8(c.resp)
	w.slots = append(w.slots, s)
	if w.batch.Count > 0 {
		hints = w.batch.Hints.And(hints)
	}
	w.batch.Hints = hints
	w.batch.Count++
	w.batch.Write = w.batch.Write || write
}

// makeRoom executes the batch if a request of at most this size would make the batch too large.
func (c *conn) makeRoom(size int) {
	if len(c.w.batch.Body)+c.rulesBytes()+size > batchBytes {
		c.runBatch()
	}
}

// appendRequest appends a data command for the state machine. If the command must not wait, ticket is 0.
func (c *conn) appendRequest(body []byte, ticket uint64, req *request) []byte {
	head := protocol.Head{DB: req.db, Ticket: ticket, Lock: req.lock, User: c.sends(req.row)}
	judged := c.judges(req.row)
	if judged {
		head.Rights = c.rules()
	}
	switch {
	case req.lock:
		head.Conn, head.GraceMillis = c.id, c.srv.cfg.LockQueueGrace.Milliseconds()
		if req.Name == "lock.break" {
			head.Address, head.Name = c.breaker()
		}
	case judged, ticket == 0 && req.fromConn():
		head.Conn = c.id
	}
	return protocol.AppendRequest(body, head, req.Name, req.args[req.nameArgs:])
}

// runBatch executes the batch and places its replies.
func (c *conn) runBatch() {
	w := c.w
	if len(w.slots) == 0 {
		return
	}
	for c.runPiece() {
	}
	w.reset()
}

// runPiece executes the remaining requests of the batch and places their replies. It reports whether reads remain.
// These run after the client has taken the replies before, so that the replies do not add up in memory.
func (c *conn) runPiece() (more bool) {
	w := c.w
	batch := &w.batch
	c.account()
	batch.OnNumber = c.onNumber
	began := time.Now()
	w.began = began
	c.srv.metrics.NoteRates(began)
	if c.locks.entered && slices.ContainsFunc(w.slots, func(s slot) bool { return s.lock != nil && s.lock.keeps }) {
		c.srv.backend.Clients().Renewer.Ask(c.id, began)
	}
	c.pin()
	err := c.srv.backend.Execute(batch)
	c.unpin()
	n := batch.Count
	if err == nil && !batch.Write {
		n = answered(batch.Replies)
	}
	c.srv.timeBatch(&c.profile, w, time.Since(began), n)
	if err == nil && len(batch.Replies) != batch.Count {
		err = errReplyCount
	}
	if err == nil && batch.Write {
		c.lastWrite = batch.Number
		if w.publishes {
			c.lastPublish = batch.Number
		}
	}
	if err != nil {
		w.replyBytes = 0
		c.failAll(err)
		return false
	}
	batch.Replies = batch.Replies[:n]
	w.replyBytes = c.srv.memoryOf(batch.Replies...)
	c.account()
	c.addReplies()
	if n == batch.Count || c.disconnected {
		return false
	}
	batch.Body = append(batch.Body[:0], batch.Body[protocol.BodyLen(batch.Body, n):]...)
	batch.Count, batch.Replies = batch.Count-n, nil
	return true
}

// answered returns the number of reads of a batch that have replies. If none has, it returns the number of all, so that
// the client gets the error.
func answered(replies []protocol.Value) int {
	n := len(replies)
	for n > 0 && replies[n-1].Kind == protocol.KindError && replies[n-1].Str == noRoom {
		n--
	}
	if n == 0 {
		return len(replies)
	}
	return n
}

var noRoom = protocol.ErrNoRoom.Value().Str

// addReplies writes the replies of a batch that are known, in the order of their commands.
func (c *conn) addReplies() {
	w := c.w
	for ; w.placed < len(w.slots); w.placed++ {
		s := &w.slots[w.placed]
		if s.kind == slotLocal {
			w.out = append(w.out, w.local[s.from:s.to]...)
		} else if len(w.batch.Replies) == 0 {
			return
		} else {
			v := w.batch.Replies[0]
			w.batch.Replies = w.batch.Replies[1:]
			c.addReply(s, v)
		}
		c.writeIfFull()
	}
}

// failAll replies to every command of a batch with its error.
func (c *conn) failAll(err error) {
	w := c.w
	failure := c.srv.errorReply(err)
	// After an error the backend may still hold the body.
	w.batch.Body = nil
	for ; w.placed < len(w.slots); w.placed++ {
		s := &w.slots[w.placed]
		if s.kind == slotLocal {
			w.out = append(w.out, w.local[s.from:s.to]...)
		} else {
			c.addReply(s, failure)
		}
		c.writeIfFull()
	}
}

// addReply writes the reply of a request.
func (c *conn) addReply(s *slot, v protocol.Value) {
	if s.shown != nil {
		s.shown.showExec(c.srv.cfg.Monitors, c.addr, c.db, v.Kind == protocol.KindArray)
	}
	switch s.kind {
	case slotWatch:
		v = c.watches.noteMarks(s, v)
	case slotBlock:
		if c.addBlockedReply(s, v) {
			return
		}
	case slotExec:
		s.lock.answered(c, v)
		c.finishTransaction(s, v)
		return
	}
	if s.wait != nil && s.wait.notify {
		c.addNoticeReply(s.wait, v)
	}
	s.lock.answered(c, v)
	if s.judged {
		v = c.noteRefusals(v)
	}
	if s.row != nil {
		v = s.row.WrongSyntax(v)
	}
	if s.published != nil {
		v = s.published.answer(c.srv, v)
	}
	if s.row != nil && s.row.handler.fill != nil && !s.mute {
		v = s.row.handler.fill(c, s.from, s.key, v)
	}
	v = c.srv.limitReply(s.row, v)
	c.srv.count(s.row, v)
	if !s.mute {
		c.encode(v, int(s.resp))
	}
}

var errReplyCount = errors.New("the batch has not as many replies as requests")

// reset empties the batch, and keeps its memory.
func (w *work) reset() {
	clear(w.slots)
	w.slots, w.local, w.placed, w.replyBytes = w.slots[:0], w.local[:0], 0, 0
	w.publishes, w.numbered = false, false
	w.batch = replica.Batch{Body: w.batch.Body[:0]}
}

// The time of a command of the log is measured from the call of the backend to the replies, so it includes the way to
// the leader and to the disks of a majority. The commands of a batch share its time equally.

// timeBatch records that the next n commands of the batch took d together.
func (s *Server) timeBatch(p *profile, w *work, d time.Duration, n int) {
	if n == 0 {
		return
	}
	share := d / time.Duration(n)
	slow := s.slow.IsSlow(share)
	body := ""
	if slow {
		body = unsafe.String(unsafe.SliceData(w.batch.Body), len(w.batch.Body)) // until this returns
	}
	for i := w.placed; n > 0; i++ {
		at := &w.slots[i]
		if at.kind == slotLocal {
			continue
		}
		n--
		at.row.stats.Took(share)
		if slow {
			var args []string
			if args, body = observe.FirstRequest(at.row.Command, body); args != nil {
				s.noteSlow(p, at.row, args, share)
			}
		}
	}
}

// timeLocal records that a command of this node took d.
func (s *Server) timeLocal(p *profile, req *request, d time.Duration) {
	req.stats.Took(d)
	if s.slow.IsSlow(d) {
		s.noteSlow(p, req.row, observe.Shorten(req.Command, req.args), d)
	}
}

// noteSlow records a slow command.
func (s *Server) noteSlow(p *profile, row *row, args []string, d time.Duration) {
	s.slow.Note(row.Command, observe.Entry{
		At: time.Now(), Took: d, Args: args, Addr: p.addr.String(), Name: p.view().name,
	})
}
