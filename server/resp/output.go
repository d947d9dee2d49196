package resp

import (
	"errors"
	"os"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/tidwall/redcon"
)

const (
	// spillBytes is what is gathered before it is written though the pipeline is not
	// answered yet; a smaller pipeline leaves in one write.
	spillBytes = 256 << 10
	// stallTime is how long a write may take before that is looked into, at least.
	stallTime = 100 * time.Millisecond
	// bigAggregate is the number of elements from which an array is written piece by piece.
	bigAggregate = 1024
)

// emit appends a reply to the output.
func (c *conn) emit(v protocol.Value, resp int) {
	w := c.w
	if v.Kind == protocol.KindArray && len(v.Elems) >= bigAggregate {
		w.out = redcon.AppendArray(w.out, len(v.Elems))
		for i := range v.Elems {
			w.unsent = v.Elems[i:]
			c.emit(v.Elems[i], resp)
		}
		w.unsent = nil
		return
	}
	w.out = v.AppendTo(w.out, resp)
	c.spill()
}

// spill writes the output when much of it has gathered.
func (c *conn) spill() {
	if len(c.w.out) >= spillBytes {
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
		case n > 0:
			since = time.Now()
		case c.tooSlow(time.Since(since), len(out)):
			return false
		}
		if ahead == nil {
			ahead = c.readAhead(c.srv.cfg.Limits.QueryBytes-c.w.buffered(), func() {})
		}
	}
}

// writeTLS does the same where a write that timed out cannot be gone on with: the
// client is given the long time at once.
func (c *conn) writeTLS(out []byte) bool {
	started := make(chan *readAhead, 1)
	stall := time.AfterFunc(stallTime, func() {
		started <- c.readAhead(c.srv.cfg.Limits.QueryBytes, func() {})
	})
	c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.Timing.Write))
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

// tooSlow decides about a client that has taken nothing for a while; unwritten
// is what is left of the output.
func (c *conn) tooSlow(stalled time.Duration, unwritten int) bool {
	limit := c.srv.cfg.Timing.Write
	if unwritten+c.w.waiting() > c.srv.cfg.Limits.OutputBytes {
		limit = min(limit, c.srv.cfg.Timing.Grace)
	}
	if stalled < limit {
		return false
	}
	c.cutOff(unwritten)
	return true
}

func (c *conn) cutOff(unwritten int) {
	c.srv.stats.cutOff.Add(1)
	c.srv.cfg.Logger.Warn("cut off a client that does not read", "client", c.nc.RemoteAddr(), "id", c.id, "unread", unwritten+c.w.waiting())
}

// waiting estimates the bytes of the replies that are known and not in the output yet.
func (w *work) waiting() int {
	n := 0
	for i := range w.unsent {
		n += sizeOf(&w.unsent[i])
	}
	for i := range w.unit.Replies {
		n += sizeOf(&w.unit.Replies[i])
	}
	return n
}

func sizeOf(v *protocol.Value) int {
	n := len(v.Str) + 8
	for i := range v.Elems {
		n += sizeOf(&v.Elems[i])
	}
	return n
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
	c.linger()
}
