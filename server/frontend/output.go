package frontend

import (
	"errors"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

const (
	// clientChunk is what is gathered before it is written though the pipeline is not
	// answered yet; a smaller pipeline leaves in one write.
	clientChunk = 256 << 10
	// strangerChunk is the same for a client that has not authenticated.
	strangerChunk = 16 << 10
	// stallTime is how long a write may take before that is looked into, at least.
	stallTime = 100 * time.Millisecond
)

// Replies that are not sent, because they are larger than MaxOutputBytes. What
// a write did stays, so its client must not take the error for a refusal.
var (
	errReplyTooLarge = newError("the reply is larger than max-output-bytes")
	errWriteTooLarge = &protocol.Error{
		Prefix: "UNCERTAIN", Text: "The command was applied, but its reply is larger than max-output-bytes", Outcome: protocol.OutcomeUnknown,
	}
)

// limitReply returns v, or the error that is sent in its place as v is too large. It looks
// at what v stands for before any of it is encoded.
func (c *conn) limitReply(row *row, v protocol.Value) protocol.Value {
	limit := c.srv.cfg.MaxOutputBytes
	if len(v.Elems) == 0 && len(v.Str) < limit {
		return v
	}
	if _, ok := v.SizeWithin(limit); ok {
		return v
	}
	if row != nil && (row.write || row == c.srv.execRow) {
		return errWriteTooLarge.Value()
	}
	return errReplyTooLarge.Value()
}

// encode appends a reply to the output, and writes the output whenever enough has gathered.
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
	w.out = v.AppendPieces(w.out, resp, limit, c.writePiece)
	w.unencoded = 0
	c.writeIfFull()
}

// outputChunk is how much is gathered before it is written.
func (c *conn) outputChunk() int {
	if !c.authenticated {
		return strangerChunk
	}
	return clientChunk
}

// writePiece writes a piece of a reply.
func (c *conn) writePiece(piece []byte) []byte {
	w := c.w
	w.unencoded = max(0, w.unencoded-len(piece))
	w.out = piece
	c.write()
	return w.out
}

// writeIfFull writes the output when much of it has gathered.
func (c *conn) writeIfFull() {
	if len(c.w.out) >= c.outputChunk() {
		c.write()
	}
}

// write sends the output. A failure closes the connection: what follows is
// dropped, as nobody is there to read it.
//
// Many clients send a whole pipeline before they read the first reply. When the
// replies fill all buffers on the way, both sides would wait for each other; so a
// write that stalls has the rest of the pipeline read beside it.
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

// writePlain reports whether the client took all.
func (c *conn) writePlain(out []byte) bool {
	var ahead *readAhead
	defer func() { c.join(ahead) }()
	// since is when the client last took something, as far as it is known.
	for since := time.Now(); ; {
		if now := time.Now(); c.writeBy.Sub(now) < stallTime {
			// A deadline that is far enough is left as it is: moving it costs more than a small write.
			c.writeBy = now.Add(2 * stallTime)
			c.nc.SetWriteDeadline(c.writeBy)
		}
		n, err := c.nc.Write(out)
		c.srv.stats.bytesOut.Add(uint64(n))
		out = out[n:]
		switch {
		case err == nil:
			return true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case !c.authenticated:
			// A stranger is owed a few lines, which fit into the buffers on the way.
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

// writeTLS does the same where a write that timed out cannot be gone on with: the
// client is given the long time at once.
func (c *conn) writeTLS(out []byte) bool {
	if !c.authenticated {
		return c.writeStranger(out)
	}
	started := make(chan *readAhead, 1)
	stall := time.AfterFunc(stallTime, func() {
		c.publishStall(len(out))
		started <- c.readAhead(c.srv.cfg.MaxQueryBytes, func() {})
	})
	c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout))
	n, err := c.nc.Write(out)
	c.srv.stats.bytesOut.Add(uint64(n))
	if !stall.Stop() {
		c.join(<-started)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.cutOff(len(out))
	}
	return err == nil
}

// writeStranger writes to a client of TLS that has not authenticated, and is cut
// off at the first stall.
func (c *conn) writeStranger(out []byte) bool {
	c.nc.SetWriteDeadline(time.Now().Add(2 * stallTime))
	n, err := c.nc.Write(out)
	c.srv.stats.bytesOut.Add(uint64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.cutOff(len(out))
	}
	return err == nil
}

// tooSlow decides about a client that has taken nothing for a while; unwritten
// is what is left of the output.
func (c *conn) tooSlow(stalled time.Duration, unwritten int) bool {
	limit := c.srv.cfg.WriteTimeout
	if unwritten+c.unencodedBytes() > c.srv.cfg.MaxOutputBytes {
		limit = min(limit, c.srv.cfg.GraceTimeout)
	}
	if stalled < limit {
		return false
	}
	c.cutOff(unwritten)
	return true
}

func (c *conn) cutOff(unwritten int) {
	c.srv.stats.cutOff.Add(1)
	c.srv.cfg.Logger.Warn("cut off a client that does not read", "client", c.nc.RemoteAddr(), "id", c.id, "unread", unwritten+c.unencodedBytes())
}

// waiting bounds the bytes of the replies that are known and not in the output
// yet; beyond MaxOutputBytes it gives up counting.
func (c *conn) unencodedBytes() int {
	n, _ := protocol.SizesWithin(c.w.batch.Replies, c.srv.cfg.MaxOutputBytes)
	return n + c.w.unencoded
}

// refuse tells a client that is not admitted why, and closes.
func (c *conn) refuse(why *protocol.Error) {
	defer c.nc.Close()
	if c.tls != nil {
		// A handshake is more than a client is worth that there is no room for.
		return
	}
	c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	c.nc.Write(why.Value().AppendTo(nil, protocol.RESP2))
	c.halfClose()
}
