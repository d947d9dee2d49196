package raftnode

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's, for sending: transport notes what the other nodes acknowledge. Incoming
// requests go through filter.
type transport struct {
	self     string
	inner    *raft.NetworkTransport
	appender *appender // in place of raft's transport for AppendEntries
	filter   *rpcFilter
	acks     *acks
	log      *parallelLog
	commits  *commitNotifier
	tell     func(Event)
	// leads reports whether this node still leads term: only a leader sends again to a node that
	// cannot be reached.
	leads    atomic.Value // func(term uint64) bool
	election time.Duration
	// reluctant reports whether this node asks for no votes yet.
	reluctant func() bool
	stopped   <-chan struct{}
	pipelines sync.WaitGroup // the goroutines of all
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// resendAfter is the pause between attempts to append to a node that cannot be reached.
const resendAfter = 100 * time.Millisecond

// AppendEntries sends a heartbeat or entries.
//
// Entries are sent until they arrive, as long as this node leads and the other is a member. Raft would wait twice as
// long after each failure, up to 10 s, and nothing would end the wait. A follower that comes back after a minute would
// get nothing for up to 10 s, and a cluster that needs the follower for a majority would stand still.
//
// Large entries go in several requests, one after the other, each with an answer. Raft gets the
// last answer, or the first that is no success. See cutAppend.
//
// Raft's senders outlive their leadership for a moment, or for a pause of 10 s, and read a log that has the next
// leader's entries by then: the entry before of the one log, perhaps, and the entries of the other. Raft is no leader
// any more when it begins to change the log, so what was read before this look is the leader's.
func (t *transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	if !isHeartbeat(args) && !t.isLeading(args.Term) {
		return raft.ErrLeadershipLost
	}
	for {
		piece, rest, err := cutAppend(args, t.log)
		if err != nil {
			return err
		}
		if err := t.append(id, piece, resp); err != nil || !resp.Success || rest == nil {
			return err
		}
		if !t.isLeading(args.Term) {
			return raft.ErrLeadershipLost // the rest is of no use
		}
		args = rest
	}
}

// append sends a request.
func (t *transport) append(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat := isHeartbeat(args)
	if !heartbeat {
		t.acks.notifying(id, args.Term, commitOf(args))
	}
	for {
		var round uint64
		var sent time.Time
		match := t.acks.agreed(id, args.Term)
		err := retryStale(func() error {
			round, sent = t.acks.sending(), time.Now()
			return t.appender.call(id, args, resp)
		})
		if err == nil {
			if heartbeat {
				t.acks.took(id, time.Since(sent))
			}
			return t.answered(id, args, resp, round, match, heartbeat)
		}
		if heartbeat || !t.pause(args.Term) || !t.acks.knows(id) {
			return err
		}
	}
}

// answered notes an answer, which raft may have then. round and match are from before the request was sent.
func (t *transport) answered(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
	round, match uint64, heartbeat bool,
) error {
	// A peer that answers with our own term has followed no newer leader until now, whether the logs fit or not.
	if resp.Term == args.Term {
		t.compare(id, args.Term, match, resp.LastLog)
		t.acks.note(id, args.Term, round, matched(args, resp, heartbeat))
	}
	if n := len(args.Entries); n > 0 && resp.Success {
		t.commits.notify(id)
		// Raft may now count this node and the peer as a majority.
		return t.log.awaitWritten(args.Entries[n-1].Index)
	}
	return nil
}

// reached handles the sign that a node asks for pre-votes: it has had no heartbeat of its leader, and the way to it may
// be whole again. If this node leads, requests without an answer are made again, over new connections.
func (t *transport) reached(id raft.ServerID) { t.appender.abandon(id, t.election) }

// compare looks whether the log of a node that answers in this leadership has become shorter than the node had
// acknowledged before it was asked. A log loses no entry that agrees with its leader's, so the node is not what it was:
// an old copy of its folder was put back, or its disk lost what it had synced.
func (t *transport) compare(id raft.ServerID, term, match, last uint64) {
	if last >= match {
		return
	}
	if e := t.acks.shortened(id, term, match, last); e != nil {
		t.tell(e)
	}
}

// matched is how far the peer's log agrees after the peer took args.
func matched(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, heartbeat bool) uint64 {
	if heartbeat || !resp.Success {
		return 0
	}
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index
	}
	return args.PrevLogEntry
}

// isLeading reports whether this node leads a term.
func (t *transport) isLeading(term uint64) bool { return t.leads.Load().(func(uint64) bool)(term) }

// pause waits before the next attempt and reports whether to make the attempt.
func (t *transport) pause(term uint64) bool {
	timer := time.NewTimer(resendAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return t.isLeading(term)
	case <-t.stopped:
		return false
	}
}

// retryStale repeats a call that failed on a connection whose other end is gone. Raft keeps connections, and a node
// that restarted has closed them, or this one has as it met the next incarnation. Without a second attempt raft counts
// a vote as refused, and the cluster waits for the next election.
func retryStale(call func() error) error {
	for range connsPerPeer {
		err := call()
		gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !gone && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return call()
}

func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	round := t.acks.sending()
	t.acks.installing(id, args.Term, args.LastLogIndex)
	err := t.inner.InstallSnapshot(id, target, args, resp, data)
	if err == nil && resp.Success && resp.Term == args.Term {
		t.acks.note(id, args.Term, round, args.LastLogIndex)
	} else {
		t.acks.installing(id, args.Term, 0)
	}
	return err
}

func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse,
) error {
	return retryStale(func() error { return t.inner.RequestVote(id, target, args, resp) })
}

// RequestPreVote asks a node whether it would vote for this one. A reluctant node takes it for a refusal, as if asked.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse,
) error {
	if t.reluctant() {
		resp.Term = args.Term
		return nil
	}
	return retryStale(func() error { return t.inner.RequestPreVote(id, target, args, resp) })
}

// TimeoutNow asks a node to stand for election, and waits no longer than an election takes.
func (t *transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse,
) error {
	asked := make(chan error, 1)
	go func() {
		asked <- retryStale(func() error { return t.inner.TimeoutNow(id, target, args, &raft.TimeoutNowResponse{}) })
	}()
	timer := time.NewTimer(t.election)
	defer timer.Stop()
	select {
	case err := <-asked:
		return err
	case <-timer.C:
		return errors.New("no answer within an election timeout")
	}
}

// nominate has a node elected.
func (t *transport) nominate(id string) error {
	return t.TimeoutNow(raft.ServerID(id), "", nomination(), &raft.TimeoutNowResponse{})
}

func nomination() *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
}

// Close ends all connections.
func (t *transport) Close() error {
	err := t.inner.Close()
	t.appender.close()
	return err
}

// SetHeartbeatHandler does nothing: see [rpcFilter.handle].
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}
func (t *transport) Consumer() <-chan raft.RPC          { return t.filter.requests }

// LocalAddr is the ID: raft compares candidates and leaders by what it takes for their addresses, and a node stays
// the same candidate when its address changes.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// EncodePeer is the ID, see LocalAddr.
func (t *transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer is what EncodePeer was given.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// committed is a request that says, in term, that all up to an entry is committed.
func (t *transport) committed(term uint64, entry *raft.Log) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self),
			Addr: t.EncodePeer(raft.ServerID(t.self), ""),
		},
		Term: term, PrevLogEntry: entry.Index, PrevLogTerm: entry.Term, LeaderCommitIndex: entry.Index,
	}
}
