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

// transport sends raft's requests and records their acknowledgements in acks. Incoming requests go through filter.
type transport struct {
	self     string
	inner    *raft.NetworkTransport
	appender *appender // for AppendEntries, instead of inner
	filter   *rpcFilter
	acks     *acks
	log      *parallelLog
	// configurations has those that are withheld from members without a vote.
	configurations *configurations
	commits        *commitNotifier
	tell           func(Event)
	// leads reports whether this node still leads term, since only a leader resends.
	leads    atomic.Value // func(term uint64) bool
	election time.Duration
	// defersCandidacy is [applier.defersCandidacy].
	defersCandidacy func() bool
	stopped         <-chan struct{}
	pipelines       sync.WaitGroup // for the goroutines of all pipelines
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// resendAfter is the pause between attempts to append to a node that cannot be reached.
const resendAfter = 100 * time.Millisecond

// AppendEntries sends a heartbeat or entries, and reads the answer into resp.
//
// Entries are resent until they arrive, as long as this node leads and the other is a member. Raft would double its
// wait after each failure, up to 10 s, without a way to end it: a cluster that needs a returning follower for its
// majority would be blocked for as long.
//
// Large entries are sent in several requests, one after the other (see cutAppend). Raft gets the last answer, or the
// first without success.
//
// One of raft's senders may outlive its leadership by up to 10 s and then read entries of the next leader from the log.
// So after reading them it checks that this node still leads: raft gives up leadership before it changes the log.
func (t *transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	if !isHeartbeat(args) {
		if err := t.awaitSendable(id, args); err != nil {
			return err
		}
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
			return raft.ErrLeadershipLost // without sending the rest
		}
		args = rest
	}
}

// awaitSendable waits until no entry of a request is withheld from the node id. It returns an error if this node does
// not lead the request's term.
func (t *transport) awaitSendable(id raft.ServerID, args *raft.AppendEntriesRequest) error {
	for {
		changed := t.configurations.withheld(string(id), args.Entries)
		switch {
		case !t.isLeading(args.Term):
			return raft.ErrLeadershipLost
		case changed == nil:
			return nil
		}
		select {
		case <-changed:
		case <-t.stopped:
			return raft.ErrTransportShutdown
		}
	}
}

// append sends a request until it is answered, or must not be resent.
func (t *transport) append(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat := isHeartbeat(args)
	if !heartbeat {
		t.acks.noteNotified(id, args.Term, commitOf(args))
	}
	for {
		var round uint64
		var sent time.Time
		match := t.acks.matchOf(id, args.Term)
		err := retryStale(func() error {
			round, sent = t.acks.currentRound(), time.Now()
			return t.appender.call(id, args, resp)
		})
		if err == nil {
			if heartbeat {
				t.acks.noteRoundTrip(id, time.Since(sent))
			}
			return t.answered(id, args, resp, round, match, heartbeat)
		}
		if heartbeat || !t.pause(args.Term) || !t.acks.hasPeer(id) {
			return err
		}
	}
}

// answered records an answer that may then be passed to raft. round and match are those before the request was sent.
func (t *transport) answered(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
	round, match uint64, heartbeat bool,
) error {
	// A peer that answers with our term has followed no newer leader, whether the logs match or not.
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

// reached handles a node's request for pre-votes: it has missed its leader's heartbeats, and the path to it may work
// again. Old unanswered requests to it are abandoned, and a leader resends them over new connections.
func (t *transport) reached(id raft.ServerID) { t.appender.abandon(id, t.election) }

// compare reports a node whose log ends at last, before the match index that it had acknowledged when it was asked. A
// log never loses an entry that matches its leader's, unless an old copy of the data folder was put back or the disk
// lost synced data.
func (t *transport) compare(id raft.ServerID, term, match, last uint64) {
	if last >= match {
		return
	}
	if e := t.acks.noteShortened(id, term, match, last); e != nil {
		t.tell(e)
	}
}

// matched returns the peer's match index after its answer to args, or 0 if the answer confirms none.
func matched(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, heartbeat bool) uint64 {
	if heartbeat || !resp.Success {
		return 0
	}
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index
	}
	return args.PrevLogEntry
}

// isLeading reports whether this node leads term.
func (t *transport) isLeading(term uint64) bool { return t.leads.Load().(func(uint64) bool)(term) }

// pause waits for resendAfter and reports whether to resend.
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

// retryStale repeats a call that failed on a closed connection. Raft keeps connections that a restart of either end has
// closed. Without another attempt raft would count a vote as refused, and the cluster would wait for the next election.
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
	round := t.acks.currentRound()
	t.acks.noteSnapshot(id, args.Term, args.LastLogIndex)
	err := t.inner.InstallSnapshot(id, target, args, resp, data)
	if err == nil && resp.Success && resp.Term == args.Term {
		t.acks.note(id, args.Term, round, args.LastLogIndex)
	} else {
		t.acks.noteSnapshot(id, args.Term, 0)
	}
	return err
}

func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse,
) error {
	return retryStale(func() error { return t.inner.RequestVote(id, target, args, resp) })
}

// RequestPreVote asks a node whether it would vote for this one. A node that defers its candidacy does not ask and
// records a refusal.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse,
) error {
	if t.defersCandidacy() {
		resp.Term = args.Term
		return nil
	}
	return retryStale(func() error { return t.inner.RequestPreVote(id, target, args, resp) })
}

// TimeoutNow tells a node to start an election, and waits for the answer for up to an election timeout.
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

// nominate tells a node to start an election.
func (t *transport) nominate(id string) error {
	return t.TimeoutNow(raft.ServerID(id), "", nomination(), &raft.TimeoutNowResponse{})
}

func nomination() *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
}

// Close closes all connections.
func (t *transport) Close() error {
	err := t.inner.Close()
	t.appender.close()
	return err
}

// SetHeartbeatHandler does nothing: see [rpcFilter.handle].
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}
func (t *transport) Consumer() <-chan raft.RPC          { return t.filter.requests }

// LocalAddr returns the ID as the address. Raft compares candidates and leaders by address, and a node must remain the
// same candidate when its address changes.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// EncodePeer returns the ID, see LocalAddr.
func (t *transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer returns the ID that was passed to EncodePeer.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// committed returns a request that announces, in term, that the log is committed up to entry.
func (t *transport) committed(term uint64, entry *raft.Log) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self),
			Addr: t.EncodePeer(raft.ServerID(t.self), ""),
		},
		Term: term, PrevLogEntry: entry.Index, PrevLogTerm: entry.Term, LeaderCommitIndex: entry.Index,
	}
}
