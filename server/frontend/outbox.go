package frontend

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/push"
)

// outbox has the messages for a client until the connection's own goroutine writes them between two pipelines. Posting
// never blocks; a client that does not read is disconnected at the limits of its class.
//
// A message that many clients share counts once in the memory of all clients. For the limits of a class, and for
// evictions, each client has the whole message, as in Redis.
type outbox struct {
	srv      *Server
	socket   *socket
	mu       sync.Mutex
	messages []*push.Message
	written  int // the bytes of messages[0] that were written
	// over is the time since which the messages exceed the soft limit, or zero.
	over time.Time
	// delivering has the grants that are in the output or in a message, and are not written yet.
	delivering []*pending
	// spare is an unused pending for the next command that may wait, or nil.
	spare *pending
	// subscriber is set if the limits of PubSub apply instead of those of replies. Only the connection's goroutine changes
	// it.
	subscriber bool
	// writes is set if the output has a grant. Only the connection's goroutine uses writes and spare.
	writes bool
	// waiting is set while the goroutine waits for input. A read deadline in the past wakes it.
	waiting bool
	// closed is set at the end of the connection. The outbox then takes no more messages.
	closed bool
	// ended is the reason why the connection was cut, or "".
	ended string
	// held is the memory of the messages, and count their number. Any goroutine may read both.
	held, count atomic.Int64
}

// pushLimit returns the limit of the client's class. The caller holds outbox.mu.
func (o *outbox) pushLimit() OutputLimit {
	if o.subscriber {
		return o.srv.cfg.PubSub
	}
	return OutputLimit{SoftBytes: o.srv.cfg.MaxOutputBytes, SoftTime: o.srv.cfg.GraceTimeout}
}

// Post sends a message to the client, in the order of the calls. The message follows the replies of the commands that
// are running. Any goroutine may call Post, and Post never blocks. A connection that has ended ignores messages.
func (o *outbox) Post(m *push.Message) { o.post(m, nil) }

// post is Post for a message that may have a grant. It reports whether the outbox was open.
func (o *outbox) post(m *push.Message, grant *pending) bool {
	if m.Hold() {
		o.srv.addMemory(int64(m.Size()))
	}
	if !o.addMessage(m, grant) {
		o.srv.letGo(m)
		return false
	}
	return true
}

// addMessage appends m to the outbox and wakes the connection's goroutine.
func (o *outbox) addMessage(m *push.Message, grant *pending) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if grant != nil {
		grant.state, grant.message = pendingDelivering, m
		o.delivering = append(o.delivering, grant)
	}
	o.messages = append(o.messages, m)
	o.count.Add(1)
	o.held.Add(int64(m.Size()))
	if o.overLimit() {
		o.srv.metrics.CutOff.Add(1)
		o.end("messages are not read")
		return true
	}
	o.wake()
	return true
}

// Cut closes the connection, and logs why. Any goroutine may call Cut.
func (o *outbox) Cut(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.end(why)
	}
}

// end is Cut for a caller that holds outbox.mu.
func (o *outbox) end(why string) {
	o.ended = why
	o.dropMessages()
	// Closing TLS would wait for a write that has not ended.
	o.socket.plainConn().Close()
}

// whyEnded returns why the connection was cut, or "".
func (o *outbox) whyEnded() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// overLimit reports whether the messages exceed the limit of the client's class. The caller holds
// outbox.mu.
func (o *outbox) overLimit() bool {
	limit := o.pushLimit()
	held := int(o.held.Load())
	switch {
	case limit.HardBytes > 0 && held > limit.HardBytes:
		return true
	case held <= limit.SoftBytes:
		o.over = time.Time{}
		return false
	case o.over.IsZero():
		o.over = time.Now()
		return false
	}
	return time.Since(o.over) > limit.SoftTime
}

// wake ends the goroutine's wait for input. The caller holds outbox.mu.
func (o *outbox) wake() {
	if o.waiting {
		o.waiting = false
		o.socket.nc.SetReadDeadline(longAgo())
	}
}

// dropMessages drops all messages, at the end of the connection. The caller holds outbox.mu.
func (o *outbox) dropMessages() {
	o.closed = true
	for _, m := range o.messages {
		o.srv.letGo(m)
	}
	o.messages, o.written = nil, 0
	o.held.Store(0)
	o.count.Store(0)
}

// closeOutbox drops the messages of a connection that ends.
func (o *outbox) closeOutbox() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropMessages()
}

// takeMessages appends at most n bytes of the messages to dst.
func (o *outbox) takeMessages(dst []byte, n, resp int) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := 0
	for n > 0 && taken < len(o.messages) {
		m := o.messages[taken]
		before := len(dst)
		dst = m.AppendFrom(dst, resp, o.written, n)
		n -= len(dst) - before
		o.written += len(dst) - before
		if o.written < m.Len(resp) {
			break
		}
		o.written = 0
		o.writing(m)
		o.messages[taken] = nil
		taken++
		o.held.Add(-int64(m.Size()))
		o.srv.letGo(m)
	}
	o.count.Add(-int64(taken))
	if o.messages = o.messages[taken:]; len(o.messages) == 0 {
		o.messages = nil
	}
	o.overLimit()
	return dst
}

// armWake reports whether there is nothing to deliver. If so, later messages wake the goroutine.
func (o *outbox) armWake(parked *pending) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = len(o.messages) == 0 && !parked.completed()
	return o.waiting
}

// disarmWake ends armWake, and reports whether a message has woken the goroutine.
func (o *outbox) disarmWake() (woken bool) {
	o.mu.Lock()
	woken = !o.waiting
	o.waiting = false
	o.mu.Unlock()
	return woken
}

// setSubscriber sets whether the limits of subscribers apply.
func (o *outbox) setSubscriber(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscriber = yes
}

// subscribed reports whether the client is a subscriber. Only the connection's goroutine may call it.
func (o *outbox) subscribed() bool { return o.subscriber }

// overdue reports whether a subscriber has exceeded a limit, the soft one for SoftTime.
func (o *outbox) overdue() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.overLimit()
}

// addGrant records that the reply in the output is a grant.
func (o *outbox) addGrant(p *pending) {
	o.mu.Lock()
	p.state = pendingDelivering
	o.delivering = append(o.delivering, p)
	o.mu.Unlock()
	o.writes = true
}

// delivered is called after all output was written, or after the client has disconnected.
func (o *outbox) delivered(disconnected bool) {
	o.writes = false
	o.mu.Lock()
	defer o.mu.Unlock()
	if disconnected || o.delivering == nil {
		return
	}
	if o.delivering = slices.DeleteFunc(o.delivering, func(p *pending) bool {
		if p.message == nil && !p.notify {
			o.keep(p)
		}
		return p.message == nil
	}); len(o.delivering) == 0 {
		o.delivering = nil
	}
}

// writing records that a message was added to the output. The caller holds outbox.mu.
func (o *outbox) writing(m *push.Message) {
	for _, p := range o.delivering {
		if p.message == m {
			p.message = nil
			return
		}
	}
}
