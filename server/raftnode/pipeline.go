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
	// FarAway is the round-trip time from which on a follower is replicated to through a pipeline.
	FarAway = 4 * time.Millisecond
	// pipelineDepth bounds the unanswered requests of a pipeline. Together their entries have up to appendGather bytes,
	// unless a single request has more.
	pipelineDepth = 64
	// extendedTo bounds the entries of a request that extend has made larger.
	extendedTo = pipelineDepth * maxAppend
)

// pipeline sends requests to a distant follower before earlier ones are answered. Requests and answers are in order,
// over one connection. Raft returns to single requests when the pipeline fails.
//
// Each request keeps the contract of [transport.AppendEntries]: it is resent until it arrives, as long as this node
// leads, and its answer is passed to raft when the leader's own disk has the entries. A new connection resends all
// unanswered requests in order. Raft takes any answer as a sign of life, so a request that failed is never answered.
//
// Raft's own pipeline can hang when it is full and its answers are no longer received (hashicorp/raft#612). Here an
// answer without success ends the pipeline, whoever waits.
type pipeline struct {
	t       *transport
	id      raft.ServerID
	futures chan raft.AppendFuture
	closed  chan struct{}

	mu      sync.Mutex
	changed sync.Cond    // signals a change of the fields below
	sent    []*pipelined // unanswered requests, in order
	next    int          // index in sent of the first request not written to conn
	bytes   int          // total bytes of sent
	failed  error        // set when the pipeline has failed; sent is then empty
	conn    *appendConn  // nil until the next connection, over which all of sent is written
	writing bool         // whether a request is being written to conn, which then has no deadline
	// heard is the time of the last answer, or at which sent was last empty, plus the time spent on writes since then.
	heard time.Time
}

// pipelined is a request, or one of its parts.
type pipelined struct {
	args         *raft.AppendEntriesRequest
	future       *appendFuture
	last         bool // whether the answer completes the whole request
	bytes        int
	round, match uint64 // see transport.append
}

// appendFuture is a whole request, as raft made it.
type appendFuture struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
}

func (f *appendFuture) Error() error                          { return nil }
func (f *appendFuture) Start() time.Time                      { return f.start }
func (f *appendFuture) Request() *raft.AppendEntriesRequest   { return f.args }
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }

// AppendEntriesPipeline opens a pipeline to a distant follower. For others it returns an error.
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

// Consumer returns the channel from which raft receives the answers, in order.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.futures }

// Close ends the pipeline: no request is resent, and no answer is passed to raft. Written requests may still arrive,
// which raft relies on for the last request to a removed member.
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

// AppendEntries waits for room and sends a request, if this node still leads its term (see [transport.AppendEntries]).
// A pipeline to a member that is no longer distant ends when nothing is in flight.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture,
	error,
) {
	if p.isNear() {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p.extend(args)
	if err := p.t.awaitSendable(p.id, args); err != nil {
		return nil, err
	}
	return p.enqueue(args, resp)
}

// enqueue sends a request, in parts if it is large.
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

// isNear reports whether the follower is no longer distant. The threshold is half of FarAway, for hysteresis.
func (p *pipeline) isNear() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent) == 0 && p.t.acks.roundTripTo(p.id) < FarAway/2
}

// extend adds the following entries to a full request. Raft's pipeline sends one request whenever an entry is appended
// or CommitTimeout has passed, so a lagging member would get only maxAppend entries each time. Raft continues behind
// the request's last entry.
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
	p.t.acks.noteNotified(p.id, r.args.Term, commitOf(r.args))
	p.sent, p.bytes = append(p.sent, r), p.bytes+r.bytes
	p.changed.Broadcast()
	return nil
}

// write writes the requests in order until the pipeline ends. Only write writes to a connection.
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
		r.round, r.match = p.t.acks.currentRound(), p.t.acks.matchOf(p.id, r.args.Term)
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

// expectAnswer sets the deadline of the next answer. Requires p.mu.
func (p *pipeline) expectAnswer() {
	if !p.writing {
		_ = p.conn.SetReadDeadline(p.heard.Add(answerTimeout(p.bytes)))
	}
}

// broken closes a connection that failed with err.
func (p *pipeline) broken(conn *appendConn, err error) {
	_ = conn.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		wire.Stuck(conn.Conn)
		p.t.appender.hangUp(p.id) // idle connections use the same path
	}
}

// receive reads the answers in order until the pipeline ends.
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
		if p.isClosed() || !p.t.pause(r.args.Term) || !p.t.acks.hasPeer(p.id) {
			p.end(err)
			return
		}
	}
}

// oldest waits for and returns the oldest unanswered request, or nil if the pipeline ends.
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

// answerTo reads the answer to r, the oldest request. It closes the connection if that fails.
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

// connected returns the connection once the oldest request has been written to it. It connects first if necessary, so
// that write resends all unanswered requests.
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

// answered passes the answer to the oldest request to raft, and reports whether the pipeline continues.
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
	p.sent[0] = nil // the array is reused
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
