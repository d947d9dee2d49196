package raftnode

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

const (
	// FarAway is the round trip from which on a follower is sent requests before earlier ones are answered.
	FarAway = 4 * time.Millisecond
	// pipelineDepth is how many requests of a pipeline have no answer at most. Their entries are of appendGather bytes
	// together, or a single request's.
	pipelineDepth = 64
	// extendedTo is how many entries a request has at most that has more than raft gives at a time.
	extendedTo = pipelineDepth * maxAppend
)

// pipeline sends a follower that is far away requests before earlier ones are answered. They go over one connection, in
// order, and so do the answers. Raft goes back to single requests when the pipeline fails.
//
// What [transport.AppendEntries] promises holds for each request: it is sent again until it arrives, as long as this
// node leads, and its answer is handed to raft when the leader's own disk has the entries. Over another connection all
// that have no answer are sent again, in order. Raft takes any answer for a sign that the follower is there, so it gets
// none for a request that failed.
//
// Raft's own pipeline can hang for good when it is full and nobody takes the answers any more: hashicorp/raft#612. Here
// an answer that is no success ends the pipeline, whoever waits.
type pipeline struct {
	t       *transport
	id      raft.ServerID
	futures chan raft.AppendFuture
	closed  chan struct{}

	mu      sync.Mutex
	changed sync.Cond    // any of these
	sent    []*pipelined // without an answer, in order
	next    int          // of sent, the first that was not written to conn
	bytes   int          // of sent
	failed  error        // why no more is sent; sent is empty
	conn    *appendConn  // nil: the next is to be made, and all of sent goes over it
	writing bool         // a request is being written to conn, which has no deadline meanwhile
	// heard is when the last answer came, or sent was empty for the last time. The time of writes since then is added.
	heard time.Time
}

// pipelined is a request, or a piece of it.
type pipelined struct {
	args         *raft.AppendEntriesRequest
	future       *appendFuture
	last         bool // the answer is that to the whole request
	bytes        int
	round, match uint64 // see transport.append
}

// appendFuture is a request of raft's.
type appendFuture struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
}

func (f *appendFuture) Error() error                          { return nil }
func (f *appendFuture) Start() time.Time                      { return f.start }
func (f *appendFuture) Request() *raft.AppendEntriesRequest   { return f.args }
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }

// AppendEntriesPipeline opens a pipeline to a follower that is far away.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, _ raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.acks.roundTripTo(id) < FarAway {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p := &pipeline{
		t: t, id: id, futures: make(chan raft.AppendFuture, pipelineDepth), closed: make(chan struct{}),
	}
	p.changed.L = &p.mu
	t.pipelines.Go(p.write)
	t.pipelines.Go(p.receive)
	return p, nil
}

// Consumer is where raft takes the answers, in order.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.futures }

// Close ends the pipeline: no request is sent again, and nobody is told of the answers. Requests that are on their way
// may still arrive, as raft wishes for the last request to a member that is removed.
func (p *pipeline) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.closed)
	if len(p.sent) == 0 {
		p.fail(raft.ErrPipelineShutdown)
	}
	return nil
}

func (p *pipeline) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// AppendEntries sends a request when there is room for it. Raft's senders outlive their leadership: see
// [transport.AppendEntries]. A pipeline to a member that is near by now ends when nothing is in flight.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture,
	error,
) {
	if p.isNear() {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p.extend(args)
	return p.enqueue(args, resp)
}

// enqueue sends a request, in pieces if it is large.
func (p *pipeline) enqueue(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture,
	error,
) {
	future := &appendFuture{start: time.Now(), args: args, resp: resp}
	for rest := args; rest != nil; {
		piece, more, err := cutAppend(rest, p.t.log)
		if err != nil {
			return nil, err
		}
		r := &pipelined{args: piece, future: future, last: more == nil}
		for _, e := range piece.Entries {
			r.bytes += len(e.Data) + len(e.Extensions)
		}
		if err := p.send(r); err != nil {
			return nil, err
		}
		rest = more
	}
	return future, nil
}

// isNear reports whether the pipeline is of no use any more. Half of FarAway, so that it does not come and go.
func (p *pipeline) isNear() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent) == 0 && p.t.acks.roundTripTo(p.id) < FarAway/2
}

// extend adds the entries that follow to a request that is full. Raft's pipeline sends one request each time an entry is
// appended, or CommitTimeout has passed, so a member that is behind would get maxAppend entries each time. Raft goes on
// behind the last entry of the request.
func (p *pipeline) extend(args *raft.AppendEntriesRequest) {
	if len(args.Entries) < maxAppend {
		return
	}
	size := int64(0)
	for _, e := range args.Entries {
		size += p.t.log.sizeToSend(e)
	}
	last, err := p.t.log.LastIndex()
	for i := args.Entries[len(args.Entries)-1].Index + 1; err == nil && i <= last && len(args.Entries) < extendedTo; i++ {
		e := new(raft.Log)
		if err = p.t.log.GetLog(i, e); err != nil {
			return
		}
		if size += p.t.log.sizeToSend(e); size > appendGather {
			return
		}
		args.Entries = append(args.Entries, e)
	}
}

func (p *pipeline) send(r *pipelined) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.sent) > 0 && (len(p.sent) >= pipelineDepth || p.bytes+r.bytes > appendGather) {
		p.changed.Wait()
	}
	switch {
	case p.failed != nil:
		return p.failed
	case !p.t.isLeading(r.args.Term):
		return raft.ErrLeadershipLost
	}
	if len(p.sent) == 0 {
		p.heard = time.Now()
	}
	p.t.acks.notifying(p.id, r.args.Term, commitOf(r.args))
	p.sent, p.bytes = append(p.sent, r), p.bytes+r.bytes
	p.changed.Broadcast()
	return nil
}

// write writes the requests, one after the other, until the pipeline ends. Nothing else writes to a connection, and
// answers are taken beside.
func (p *pipeline) write() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.failed == nil && (p.conn == nil || p.next == len(p.sent)) {
			p.changed.Wait()
		}
		if p.failed != nil {
			return
		}
		conn, r, begun := p.conn, p.sent[p.next], time.Now()
		r.round, r.match = p.t.acks.sending(), p.t.acks.agreed(p.id, r.args.Term)
		p.next, p.writing = p.next+1, true
		_ = conn.SetReadDeadline(time.Time{})
		p.changed.Broadcast()
		p.mu.Unlock()
		err := conn.write(r.args)
		conn.out = wire.Kept(conn.out)
		if err != nil {
			p.broken(conn, err) // which receive notices
		}
		p.mu.Lock()
		if p.conn == conn {
			if p.heard.After(begun) {
				begun = p.heard
			}
			p.heard, p.writing = p.heard.Add(time.Since(begun)), false
			p.expectAnswer()
		}
	}
}

// expectAnswer sets how long the next answer may take. Requires p.mu.
func (p *pipeline) expectAnswer() {
	if !p.writing {
		_ = p.conn.SetReadDeadline(p.heard.Add(answerWithin(p.bytes)))
	}
}

// broken closes a connection that failed with err.
func (p *pipeline) broken(conn *appendConn, err error) {
	_ = conn.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		wire.Stuck(conn.Conn)
		p.t.appender.hangUp(p.id) // the path of the idle ones is the same
	}
}

// receive takes the answers, one after the other, until the pipeline ends.
func (p *pipeline) receive() {
	for {
		r := p.oldest()
		if r == nil {
			return
		}
		err := retryStale(func() error { return p.answerTo(r) })
		if err == nil {
			if !p.answered(r) {
				return
			}
			continue
		}
		if p.isClosed() || !p.t.pause(r.args.Term) || !p.t.acks.knows(p.id) {
			p.end(err)
			return
		}
	}
}

// oldest waits for a request that has no answer; nil: there will be none.
func (p *pipeline) oldest() *pipelined {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failed == nil && len(p.sent) == 0 {
		p.changed.Wait()
	}
	if p.failed != nil {
		return nil
	}
	return p.sent[0]
}

// answerTo reads the answer to the oldest request. If that fails the connection is over.
func (p *pipeline) answerTo(r *pipelined) error {
	conn, err := p.connected(r.args.Term)
	if err != nil {
		return err
	}
	if _, err = conn.read(r.future.resp); err == nil {
		return nil
	}
	p.broken(conn, err)
	p.mu.Lock()
	p.conn = nil
	p.mu.Unlock()
	return err
}

// connected returns the connection when the oldest request is on its way over it. Over a new one all that has no answer
// is sent.
func (p *pipeline) connected(term uint64) (*appendConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		if p.isClosed() {
			return nil, raft.ErrPipelineShutdown
		}
		p.mu.Unlock()
		conn, err := p.t.appender.take(p.id)
		p.mu.Lock()
		switch {
		case err != nil:
			return nil, err
		case p.isClosed():
			err = raft.ErrPipelineShutdown
		case !p.t.isLeading(term):
			err = raft.ErrLeadershipLost
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		p.conn, p.next, p.writing, p.heard = conn, 0, false, time.Now()
		p.changed.Broadcast()
	}
	for p.next == 0 {
		p.changed.Wait()
	}
	return p.conn, nil
}

// answered hands the answer to the oldest request to raft, and reports whether more is to come.
func (p *pipeline) answered(r *pipelined) bool {
	p.mu.Lock()
	round, match := r.round, r.match
	p.mu.Unlock()
	err := p.t.answered(p.id, r.args, r.future.resp, round, match, false)
	if err != nil {
		p.end(err)
		return false
	}
	if r.last || !r.future.resp.Success {
		select {
		case p.futures <- r.future:
		case <-p.closed:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[0] = nil // the array lives on
	p.sent, p.next, p.bytes, p.heard = p.sent[1:], p.next-1, p.bytes-r.bytes, time.Now()
	switch {
	case !r.future.resp.Success:
		p.fail(errors.New("the pipeline ended with an answer that is no success"))
	case p.next > 0:
		p.conn.sent.Store(p.heard.UnixNano())
		p.expectAnswer()
	default:
		p.conn.sent.Store(0)
		if len(p.sent) == 0 && p.isClosed() {
			p.fail(raft.ErrPipelineShutdown)
		}
	}
	p.changed.Broadcast()
	return p.failed == nil
}

func (p *pipeline) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
}

// fail ends the pipeline. Requires p.mu.
func (p *pipeline) fail(err error) {
	p.failed, p.sent, p.next, p.bytes = err, nil, 0, 0
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
	p.changed.Broadcast()
}
