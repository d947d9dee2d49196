package peertest

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// streamLimit bounds the unread bytes of a stream: a socket's send and receive buffers together.
	streamLimit = 256 << 10
	// lost is the delay of a lost packet.
	lost = 1000 * time.Hour
	// backlogLimit bounds the connections that wait for Accept.
	backlogLimit = 1024
)

// stream is one direction of a connection.
type stream struct {
	net *Network
	link
	reverse *stream
	segment int // the maximum bytes of a packet

	arrived      []byte   // readable
	transit      []packet // packets that have not arrived, in order
	transitBytes int
	lost         time.Time // when the first packet was lost that has not been retransmitted, or zero
	end          error     // io.EOF or a reset, to be read after arrived; nil while more may arrive

	readerGone, writerGone bool
	changed                signal
}

// packet has the bytes of one Write, or the end of a stream.
type packet struct {
	data []byte
	at   time.Time // the time of arrival, unless the way is cut then
	end  error
}

// settle moves packets that have arrived by now from transit to arrived. Requires: net.mu is held.
func (s *stream) settle() {
	if len(s.transit) == 0 || s.net.blocked(s.link) {
		return
	}
	now := time.Now()
	for len(s.transit) > 0 && !s.transit[0].at.After(now) {
		first := s.transit[0]
		s.transit = s.transit[1:]
		s.transitBytes -= len(first.data)
		if first.end != nil {
			s.end = first.end
			s.transit = nil
			break
		}
		if !s.readerGone {
			s.arrived = append(s.arrived, first.data...)
		}
	}
}

// send adds packets to transit. Requires: net.mu is held.
func (s *stream) send(data []byte, end error) {
	at := time.Now().Add(s.net.delayed[s.link])
	if most := s.net.largest[s.link]; most > 0 && min(len(data), s.segment) > most {
		at = at.Add(lost)
	}
	if n := len(s.transit); n > 0 && s.transit[n-1].at.After(at) {
		at = s.transit[n-1].at // bytes stay in order when a delay ends
	}
	s.transitBytes += len(data)
	for rate := s.net.rates[s.link]; rate > 0 && len(data) > 0; {
		// The bytes arrive in packets of a hundredth of a second each.
		n := min(max(rate/100, 1), len(data))
		at = at.Add(time.Duration(n) * time.Second / time.Duration(rate))
		s.transit = append(s.transit, packet{data: data[:n], at: at})
		data = data[n:]
	}
	if len(data) > 0 || end != nil {
		s.transit = append(s.transit, packet{data: data, at: at, end: end})
	}
	s.retransmit()
	s.settle()
	s.changed.fire()
}

const (
	firstRTO = 200 * time.Millisecond // Linux's minimum
	firstSYN = time.Second
	// maxRTO is the longest interval between two retransmissions.
	maxRTO = 120 * time.Second
)

// retransmitted returns the next instant at which TCP retransmits a packet first sent at lost. The interval between
// retransmissions begins with rto and doubles each time (RFC 6298, 5.5).
func retransmitted(lost time.Time, rto time.Duration) time.Time {
	at, now := lost.Add(rto), time.Now()
	for at.Before(now) {
		rto = min(2*rto, maxRTO)
		at = at.Add(rto)
	}
	return at
}

// retransmit records when packets were first lost, or lets them arrive with the next retransmission. Requires: net.mu
// is held.
func (s *stream) retransmit() {
	switch blocked := s.net.blocked(s.link); {
	case !s.net.resends:
	case blocked && s.lost.IsZero() && len(s.transit) > 0:
		s.lost = time.Now()
	case !blocked && !s.lost.IsZero():
		at := retransmitted(s.lost, firstRTO)
		for i := range s.transit {
			if s.transit[i].at.Before(at) {
				s.transit[i].at = at
			}
		}
		s.lost = time.Time{}
	}
}

// arrival returns when the next packet arrives, or zero if unknown.
func (s *stream) arrival() time.Time {
	if len(s.transit) == 0 || s.net.blocked(s.link) {
		return time.Time{}
	}
	return s.transit[0].at
}

func (s *stream) forgetIfDone() {
	if s.readerGone && s.writerGone {
		delete(s.net.streams, s)
	}
	if s.reverse.readerGone && s.reverse.writerGone {
		delete(s.net.streams, s.reverse)
	}
}

// conn is one end of a connection.
type conn struct {
	net           *Network
	local, remote address
	in, out       *stream
	closed        bool

	readDeadline, writeDeadline time.Time
}

var _ net.Conn = (*conn)(nil)

func (c *conn) Read(b []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		c.in.settle()
		switch {
		case c.closed:
			return 0, opError("read", c.remote, net.ErrClosed)
		case c.in.readerGone:
			return 0, opError("read", c.remote, syscall.ECONNRESET) // this end was crashed or broken
		case passed(c.readDeadline):
			return 0, opError("read", c.remote, os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.in.arrived) > 0:
			n := copy(b, c.in.arrived)
			c.in.arrived = c.in.arrived[n:]
			if len(c.in.arrived) == 0 {
				c.in.arrived = nil
			}
			c.in.changed.fire() // room for the writer
			return n, nil
		case c.in.end == io.EOF:
			return 0, io.EOF
		case c.in.end != nil:
			return 0, opError("read", c.remote, c.in.end)
		}
		c.wait(c.in, earlier(c.readDeadline, c.in.arrival()))
	}
}

func (c *conn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	written := 0
	for {
		c.out.settle()
		c.in.settle()
		switch {
		case c.closed:
			return written, opError("write", c.remote, net.ErrClosed)
		case c.out.writerGone, c.in.end != nil && c.in.end != io.EOF:
			return written, opError("write", c.remote, syscall.ECONNRESET)
		case passed(c.writeDeadline):
			return written, opError("write", c.remote, os.ErrDeadlineExceeded)
		case c.out.readerGone && !c.net.blocked(c.out.link) && !c.net.blocked(c.in.link):
			return written, opError("write", c.remote, syscall.EPIPE)
		}
		if room := streamLimit - len(c.out.arrived) - c.out.transitBytes; room > 0 {
			n := min(room, len(b)-written)
			if n > 0 {
				c.out.send(append([]byte(nil), b[written:written+n]...), nil)
			}
			written += n
		}
		if written == len(b) {
			c.net.writes++
			return written, nil
		}
		c.wait(c.out, earlier(c.writeDeadline, c.out.arrival()))
	}
}

// wait releases net.mu, and returns once s has changed, its next packet has arrived, or at until. Requires: net.mu is
// held.
func (c *conn) wait(s *stream, until time.Time) {
	_ = c.net.wait(context.Background(), s.changed.wait(), until) // the background context never ends
}

// Close closes the connection after all written bytes. Unread bytes are lost.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return opError("close", c.remote, net.ErrClosed)
	}
	c.closed = true
	if !c.out.writerGone {
		c.out.writerGone = true
		c.out.send(nil, io.EOF)
	}
	c.in.readerGone, c.in.arrived = true, nil
	c.in.changed.fire()
	c.out.changed.fire()
	c.out.forgetIfDone()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(func() { c.readDeadline, c.writeDeadline = t, t })
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.setDeadlines(func() { c.readDeadline = t })
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadlines(func() { c.writeDeadline = t })
}

func (c *conn) setDeadlines(set func()) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return opError("set deadline", c.remote, net.ErrClosed)
	}
	set()
	c.in.changed.fire()
	c.out.changed.fire()
	return nil
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// earlier returns the earlier of two instants, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// listener queues connections.
type listener struct {
	net     *Network
	addr    address
	backlog []*conn
	closed  bool
	changed signal
}

func (l *listener) Accept() (net.Conn, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for {
		if l.closed {
			return nil, opError("accept", l.addr, net.ErrClosed)
		}
		if len(l.backlog) > 0 {
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		_ = l.net.wait(context.Background(), l.changed.wait(), time.Time{})
	}
}

func (l *listener) Close() error {
	l.net.mu.Lock()
	if l.closed {
		l.net.mu.Unlock()
		return opError("close", l.addr, net.ErrClosed)
	}
	left := l.close()
	l.net.mu.Unlock()
	for _, c := range left {
		_ = c.Close()
	}
	return nil
}

// close closes the listener, and returns the connections that were not accepted. Requires: net.mu is held.
func (l *listener) close() []*conn {
	l.closed = true
	delete(l.net.listeners, string(l.addr))
	left := l.backlog
	l.backlog = nil
	l.changed.fire()
	return left
}

func (l *listener) Addr() net.Addr { return l.addr }
