package frontend

import (
	"errors"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// clientChunk is the size of output that is written before the pipeline ends. A smaller pipeline is one write.
	clientChunk = 256 << 10
	// strangerChunk is clientChunk for a client that has not authenticated.
	strangerChunk = 16 << 10
	// stallTime is the time after which an unfinished write counts as stalled.
	stallTime = 100 * time.Millisecond
)

// Errors in place of a reply larger than MaxOutputBytes. That for a write says that the write has had its effect.
var (
	errReplyTooLarge = protocol.NewError("the reply is larger than max-output-bytes")
	errWriteTooLarge = &protocol.Error{
		Prefix: "UNCERTAIN", Text: "The command was applied, but its reply is larger than max-output-bytes",
		Outcome: protocol.OutcomeUnknown,
	}
)

// limitReply returns v, or the error if v is too large. It does not encode v.
func (s *Server) limitReply(row *row, v protocol.Value) protocol.Value {
	limit := s.cfg.MaxOutputBytes
	if len(v.Elems) == 0 && len(v.Str) < limit {
		return v
	}
	if _, ok := v.SizeWithin(limit); ok {
		return v
	}
	if row != nil && (row.write || row == s.execRow) {
		return errWriteTooLarge.Value()
	}
	return errReplyTooLarge.Value()
}

// encode appends v to the output, and writes the output whenever a chunk is full.
func (st *stream) encode(v protocol.Value, resp int) {
	w := st.w
	limit := st.outputChunk()
	if len(v.Elems) == 0 && len(w.out)+len(v.Str) < limit {
		w.out = v.AppendTo(w.out, resp)
		st.writeIfFull()
		return
	}
	if st.disconnected {
		return
	}
	w.unencoded, _ = v.SizeWithin(st.srv.cfg.MaxOutputBytes)
	own := w.replyBytes == 0 // v is no reply of the batch
	if own {
		w.replyBytes = st.srv.memoryOf(v)
		st.accountQueue(0, w.replyBytes)
	}
	w.out = v.AppendPieces(w.out, resp, limit, st.writePiece)
	w.unencoded = 0
	if own {
		w.replyBytes = 0
	}
	st.writeIfFull()
}

// memoryOf returns the memory of replies while a client takes them. It stops counting at a bound, since elements may
// share memory.
func (s *Server) memoryOf(replies ...protocol.Value) int {
	return protocol.MemoryWithin(replies, 4*s.cfg.MaxOutputBytes)
}

// outputChunk is the size of output that is written at once.
func (st *stream) outputChunk() int {
	if !st.authenticated {
		return strangerChunk
	}
	return clientChunk
}

// writePiece writes a piece of a large reply.
func (st *stream) writePiece(piece []byte) []byte {
	w := st.w
	w.unencoded = max(0, w.unencoded-len(piece))
	w.out = piece
	st.write()
	return w.out
}

// writeIfFull writes the output when a chunk is full.
func (st *stream) writeIfFull() {
	if len(st.w.out) >= st.outputChunk() {
		st.write()
	}
}

// write sends the output. A failure ends the connection, and later output is dropped.
//
// Many clients send a whole pipeline before reading the first reply. When the replies fill all
// buffers on the way, both sides would wait for each other. So while a write stalls, the rest of
// the pipeline is read.
func (st *stream) write() {
	w := st.w
	out := w.out
	w.out = out[:0]
	switch {
	case st.disconnected || len(out) == 0:
	case st.tls != nil:
		st.disconnected = !st.writeTLS(out)
	default:
		st.disconnected = !st.writePlain(out)
	}
}

// writePlain writes to a connection without TLS, and reports whether the client took all of out.
func (st *stream) writePlain(out []byte) bool {
	var ahead *readAhead
	defer func() { st.join(ahead) }()
	// since is the time at which the client last took bytes, as far as is known.
	for since := time.Now(); ; {
		if now := time.Now(); st.writeBy.Sub(now) < stallTime {
			// A deadline that is far enough is kept, since moving it costs more than a small write.
			st.writeBy = now.Add(2 * stallTime)
			st.nc.SetWriteDeadline(st.writeBy)
		}
		n, err := st.nc.Write(out)
		st.srv.metrics.BytesOut.Add(uint64(n))
		out = out[n:]
		switch {
		case err == nil:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			st.noteVanished(err)
			return false
		case !st.authenticated:
			// The few lines for a client that has not authenticated fit into the buffers on the way.
			st.cutOff(len(out))
			return false
		case n > 0:
			since = time.Now()
		case st.tooSlow(time.Since(since), len(out)):
			return false
		}
		st.onStall(len(out))
		if ahead == nil {
			ahead = st.readAhead(st.srv.cfg.MaxQueryBytes, func() {})
		}
	}
}

// writeTLS writes to a connection with TLS, and reports whether the client took all of out. After a timeout TLS cannot
// continue, so the write gets the whole WriteTimeout at once.
func (st *stream) writeTLS(out []byte) bool {
	if !st.authenticated {
		return st.writeStranger(out)
	}
	started := make(chan *readAhead, 1)
	stall := time.AfterFunc(stallTime, func() {
		st.onStall(len(out))
		started <- st.readAhead(st.srv.cfg.MaxQueryBytes, func() {})
	})
	limit := st.srv.cfg.WriteTimeout
	if st.patient() {
		limit = max(limit, st.srv.cfg.PubSub.SoftTime)
	}
	st.nc.SetWriteDeadline(time.Now().Add(limit))
	n, err := st.nc.Write(out)
	st.srv.metrics.BytesOut.Add(uint64(n))
	if !stall.Stop() {
		st.join(<-started)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		st.cutOff(len(out))
	}
	st.noteVanished(err)
	return err == nil
}

// writeStranger writes to a TLS client that has not authenticated. The first stall ends the connection.
func (st *stream) writeStranger(out []byte) bool {
	st.nc.SetWriteDeadline(time.Now().Add(2 * stallTime))
	n, err := st.nc.Write(out)
	st.srv.metrics.BytesOut.Add(uint64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		st.cutOff(len(out))
	}
	return err == nil
}

// tooSlow reports whether a client that has taken nothing for the time stalled is disconnected, and disconnects it.
// unwritten is the size of the remaining output.
func (st *stream) tooSlow(stalled time.Duration, unwritten int) bool {
	if st.patient() {
		if !st.overdue() {
			return false
		}
		st.cutOff(unwritten)
		return true
	}
	limit := st.srv.cfg.WriteTimeout
	if unwritten+st.unencodedBytes()+int(st.outbox.held.Load()) > st.srv.cfg.MaxOutputBytes {
		limit = min(limit, st.srv.cfg.GraceTimeout)
	}
	if stalled < limit {
		return false
	}
	st.cutOff(unwritten)
	return true
}

func (st *stream) cutOff(unwritten int) {
	st.srv.metrics.CutOff.Add(1)
	st.srv.cfg.Logger.Warn("cut off a client that does not read", "client", st.nc.RemoteAddr(), "id", st.id, "unread",
		unwritten+st.unencodedBytes())
}

// unencodedBytes bounds the size of known replies that are not in the output yet. It stops counting at MaxOutputBytes.
func (st *stream) unencodedBytes() int {
	n, _ := protocol.SizesWithin(st.w.batch.Replies, st.srv.cfg.MaxOutputBytes)
	return n + st.w.unencoded
}

// refuse sends the reason to a client that is not admitted, and closes the connection.
func (st *stream) refuse(why *protocol.Error) {
	defer st.nc.Close()
	if st.tls != nil {
		// A handshake would be too expensive.
		return
	}
	st.nc.SetWriteDeadline(time.Now().Add(time.Second))
	st.nc.Write(why.Value().AppendTo(nil, protocol.RESP2))
	st.halfClose()
}

// reply places a reply of this node.
func (c *conn) reply(row *row, v protocol.Value) {
	v = c.srv.limitReply(row, v)
	c.srv.count(row, v)
	if c.replyMode.muted() {
		return
	}
	w := c.w
	if _, fits := v.SizeWithin(localBytes - len(w.local)); !fits {
		c.runBatch()
	}
	if len(w.slots) == 0 {
		c.encode(v, c.resp)
		return
	}
	from := len(w.local)
	w.local = v.AppendTo(w.local, c.resp)
	w.slots = append(w.slots, slot{kind: slotLocal, from: from, to: len(w.local)})
}

// errorReply returns the reply to every command of a batch that failed with err.
func (s *Server) errorReply(err error) protocol.Value {
	var row *protocol.Error
	if errors.As(err, &row) {
		return row.Value()
	}
	// The outcome is unknown, so the reply must not invite a retry.
	s.cfg.Logger.Error("cannot execute commands", "error", err)
	return protocol.ErrUncertain.Value()
}

// deliver writes the messages, and reports whether more have arrived meanwhile.
func (st *stream) deliver() (more bool) {
	held := &st.outbox.held
	for left := held.Load(); left > 0 && held.Load() > 0 && !st.disconnected; {
		if st.w == nil {
			st.w = st.srv.acquireWork(st)
		}
		st.w.out = st.takeMessages(st.w.out, st.outputChunk(), st.resp)
		left -= int64(len(st.w.out))
		st.pushing = true
		st.write()
		st.pushing = false
		st.delivered(st.disconnected)
	}
	return held.Load() > 0
}

// patient reports whether a write is of messages for a subscriber. Such a client is disconnected at the limits of
// subscribers, and not for a stall.
func (st *stream) patient() bool { return st.pushing && st.subscribed() }

// count counts error replies.
func (s *Server) count(row *row, v protocol.Value) {
	if !v.IsError() {
		return
	}
	s.metrics.CountError(v.Str)
	if row != nil {
		row.stats.Failed.Add(1)
	}
}
