package frontend

import (
	"errors"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// clientChunk is the size of output that is written before the pipeline ends. A smaller
	// pipeline leaves in one write.
	clientChunk = 256 << 10
	// strangerChunk is the same for a client that has not authenticated.
	strangerChunk = 16 << 10
	// stallTime is the least time after which an unfinished write counts as stalled.
	stallTime = 100 * time.Millisecond
)

// Errors that are sent in place of a reply larger than MaxOutputBytes. A write has had its effect,
// so its client must not take the error for a refusal.
var (
	errReplyTooLarge = protocol.NewError("the reply is larger than max-output-bytes")
	errWriteTooLarge = &protocol.Error{
		Prefix: "UNCERTAIN", Text: "The command was applied, but its reply is larger than max-output-bytes",
		Outcome: protocol.OutcomeUnknown,
	}
)

// limitReply returns v, or the error that is sent instead if v is too large. The size is found
// without encoding v.
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
func (c *conn) encode(v protocol.Value, resp int) {
	w := c.w
	limit := c.outputChunk()
	if len(v.Elems) == 0 && len(w.out)+len(v.Str) < limit {
		w.out = v.AppendTo(w.out, resp)
		c.writeIfFull()
		return
	}
	if c.gone {
		return
	}
	w.unencoded, _ = v.SizeWithin(c.srv.cfg.MaxOutputBytes)
	own := w.replyBytes == 0 // not of the batch
	if own {
		w.replyBytes = c.srv.memoryOf(v)
		c.accountQueue(0, w.replyBytes)
	}
	w.out = v.AppendPieces(w.out, resp, limit, c.writePiece)
	w.unencoded = 0
	if own {
		w.replyBytes = 0
	}
	c.writeIfFull()
}

// memoryOf is the memory of replies while a client takes them. Counting has an end, since elements that share
// memory may seem to be without one.
func (s *Server) memoryOf(replies ...protocol.Value) int {
	return protocol.MemoryWithin(replies, 4*s.cfg.MaxOutputBytes)
}

// outputChunk is the size of output that is written at once.
func (id *identity) outputChunk() int {
	if !id.authenticated {
		return strangerChunk
	}
	return clientChunk
}

// writePiece writes a piece of a large reply.
func (c *conn) writePiece(piece []byte) []byte {
	w := c.w
	w.unencoded = max(0, w.unencoded-len(piece))
	w.out = piece
	c.write()
	return w.out
}

// writeIfFull writes the output when a chunk is full.
func (c *conn) writeIfFull() {
	if len(c.w.out) >= c.outputChunk() {
		c.write()
	}
}

// write sends the output. A failure ends the connection, and later output is dropped.
//
// Many clients send a whole pipeline before reading the first reply. When the replies fill all
// buffers on the way, both sides would wait for each other. So while a write stalls, the rest of
// the pipeline is read.
func (c *conn) write() {
	w := c.w
	out := w.out
	w.out = out[:0]
	switch {
	case c.gone || len(out) == 0:
	case c.tls != nil:
		c.gone = !c.writeTLS(out)
	default:
		c.gone = !c.writePlain(out)
	}
}

// writePlain writes to a connection without TLS, and reports whether the client took all of out.
func (c *conn) writePlain(out []byte) bool {
	var ahead *readAhead
	defer func() { c.join(ahead) }()
	// since is when the client last took bytes, as far as is known.
	for since := time.Now(); ; {
		if now := time.Now(); c.writeBy.Sub(now) < stallTime {
			// A distant deadline stays, because moving a deadline costs more than a small write.
			c.writeBy = now.Add(2 * stallTime)
			c.nc.SetWriteDeadline(c.writeBy)
		}
		n, err := c.nc.Write(out)
		c.srv.metrics.BytesOut.Add(uint64(n))
		out = out[n:]
		switch {
		case err == nil:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.noteVanished(err)
			return false
		case !c.authenticated:
			// The few lines that a stranger is owed fit into the buffers on the way.
			c.cutOff(len(out))
			return false
		case n > 0:
			since = time.Now()
		case c.tooSlow(time.Since(since), len(out)):
			return false
		}
		c.publishStall(len(out))
		if ahead == nil {
			ahead = c.readAhead(c.srv.cfg.MaxQueryBytes, func() {})
		}
	}
}

// writeTLS writes to a connection with TLS, and reports whether the client took all of out. TLS
// cannot continue after a write that timed out, so the client gets the whole WriteTimeout at once.
func (c *conn) writeTLS(out []byte) bool {
	if !c.authenticated {
		return c.writeStranger(out)
	}
	started := make(chan *readAhead, 1)
	stall := time.AfterFunc(stallTime, func() {
		c.publishStall(len(out))
		started <- c.readAhead(c.srv.cfg.MaxQueryBytes, func() {})
	})
	limit := c.srv.cfg.WriteTimeout
	if c.patient() {
		limit = max(limit, c.srv.cfg.PubSub.SoftTime)
	}
	c.nc.SetWriteDeadline(time.Now().Add(limit))
	n, err := c.nc.Write(out)
	c.srv.metrics.BytesOut.Add(uint64(n))
	if !stall.Stop() {
		c.join(<-started)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.cutOff(len(out))
	}
	c.noteVanished(err)
	return err == nil
}

// writeStranger writes to a TLS client that has not authenticated. The first stall ends the
// connection.
func (c *conn) writeStranger(out []byte) bool {
	c.nc.SetWriteDeadline(time.Now().Add(2 * stallTime))
	n, err := c.nc.Write(out)
	c.srv.metrics.BytesOut.Add(uint64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.cutOff(len(out))
	}
	return err == nil
}

// tooSlow decides about a client that has taken nothing for the time stalled. unwritten is the rest
// of the output.
func (c *conn) tooSlow(stalled time.Duration, unwritten int) bool {
	if c.patient() {
		if !c.overdue() {
			return false
		}
		c.cutOff(unwritten)
		return true
	}
	limit := c.srv.cfg.WriteTimeout
	if unwritten+c.unencodedBytes()+int(c.outbox.held.Load()) > c.srv.cfg.MaxOutputBytes {
		limit = min(limit, c.srv.cfg.GraceTimeout)
	}
	if stalled < limit {
		return false
	}
	c.cutOff(unwritten)
	return true
}

func (c *conn) cutOff(unwritten int) {
	c.srv.metrics.CutOff.Add(1)
	c.srv.cfg.Logger.Warn("cut off a client that does not read", "client", c.nc.RemoteAddr(), "id", c.id, "unread",
		unwritten+c.unencodedBytes())
}

// unencodedBytes bounds the size of known replies that are not in the output yet. Counting stops
// beyond MaxOutputBytes.
func (c *conn) unencodedBytes() int {
	n, _ := protocol.SizesWithin(c.w.batch.Replies, c.srv.cfg.MaxOutputBytes)
	return n + c.w.unencoded
}

// refuse tells a client why it is not admitted, and closes.
func (c *conn) refuse(why *protocol.Error) {
	defer c.nc.Close()
	if c.tls != nil {
		// A handshake would cost more than this client is worth.
		return
	}
	c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	c.nc.Write(why.Value().AppendTo(nil, protocol.RESP2))
	c.halfClose()
}
