package raftnode

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// fastFailover shortens the time without a leader after the leader's process died.
//
// Raft finds that out by silence, and must be patient with silence: a busy
// machine is silent, too. But a process that dies closes its connections, and its
// port refuses new ones. A node that sees both asks the others; when a
// majority sees the same, and nobody among them is moreUpToDate, one of the others tells it
// to have itself elected at once, by the message that transfers leadership. Fitter is who has the
// longer log, without which it would not be elected, and then who has applied more of it: a node
// that was started a moment ago may need seconds for that before it serves.
//
// Nothing here can harm more than an election does: votes and logs are as ever.
// That a majority must agree keeps a node that is alone refused by a healthy leader from
// deposing it, again and again.
type fastFailover struct {
	n    *Node
	wake chan struct{}

	mu   sync.Mutex
	dead deadLeader
}

// deadLeader is a leadership whose leader's process is gone. The zero value is none.
type deadLeader struct {
	leader string
	term   uint64
}

// How long and how often the others are asked.
const (
	askEvery  = 20 * time.Millisecond
	askWithin = 500 * time.Millisecond
)

func newFastFailover(n *Node) *fastFailover {
	return &fastFailover{n: n, wake: make(chan struct{}, 1)}
}

// Refused is told that leader's port refused a connection.
func (n *Node) Refused(leader string) {
	s := n.failover
	s.mu.Lock()
	s.dead = deadLeader{leader: leader, term: n.raft.CurrentTerm()}
	s.mu.Unlock()
	notify(s.wake)
}

// Reached is told that leader was reached.
func (n *Node) Reached(leader string) {
	s := n.failover
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead.leader == leader {
		s.dead = deadLeader{}
	}
}

// vacant returns the leadership that is known to be without its leader, as long as
// there has been no other since.
func (s *fastFailover) vacant() deadLeader {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, leader := s.n.raft.LeaderWithID()
	if s.n.raft.CurrentTerm() != s.dead.term || leader != "" && string(leader) != s.dead.leader {
		s.dead = deadLeader{}
	}
	return s.dead
}

func (s *fastFailover) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if dead := s.vacant(); dead != (deadLeader{}) {
			s.ask(ctx, dead)
			timer.Reset(askEvery)
		}
	}
}

// ask asks the others, and has itself nominated if this node is the one.
func (s *fastFailover) ask(ctx context.Context, dead deadLeader) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	own := proposal{candidate: s.self(), deadLeader: dead}
	var mu sync.Mutex
	var agree []string
	best := true
	var asks sync.WaitGroup
	for name := range s.n.config.InitialCluster {
		if name == own.name || name == dead.leader {
			continue
		}
		asks.Go(func() {
			other, agrees, err := s.send(ctx, name, own)
			if err != nil || !agrees {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			agree = append(agree, name)
			best = best && own.moreUpToDate(other)
		})
	}
	asks.Wait()
	if !best || len(agree) < s.n.acks.quorum || s.vacant() != dead {
		return
	}
	own.nominate = true
	_, _, _ = s.send(ctx, agree[0], own) // if it fails, the next attempt is in a moment
}

// candidate is a node that may be elected.
type candidate struct {
	name    string
	length  uint64 // of its log
	applied uint64 // how much of it, as far as the node tells
	tells   bool   // older releases do not
}

// moreUpToDate reports whether c rather than o is to be elected. The names decide between equals.
func (c candidate) moreUpToDate(o candidate) bool {
	switch {
	case c.length != o.length:
		return c.length > o.length
	case c.tells && o.tells && c.applied != o.applied:
		return c.applied > o.applied
	default:
		return c.name < o.name
	}
}

func (s *fastFailover) self() candidate {
	return candidate{name: s.n.config.Name, length: s.n.raft.LastIndex(), applied: s.n.raft.AppliedIndex(), tells: true}
}

// The messages of a proposal, each alone in its frame (see package wire). They travel over the stream that also carries
// clients' requests to the leader, which tells them apart by the first byte.
//
//	question  kind, version, bytes name, length of log, bytes leader, term, whether to nominate
//	answer    kind, whether that node agrees, length of its log, how much of it is applied
const (
	// ProposalKind is the first byte of either message.
	ProposalKind    = 'b'
	proposalVersion = 2
)

// proposal is the question that one node asks another. The answer is whether that
// one sees the same, and what it is as a candidate.
type proposal struct {
	candidate
	deadLeader      // what it found
	nominate   bool // send it TimeoutNow
}

func (q proposal) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, ProposalKind), proposalVersion)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, q.name), q.length)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, q.leader), q.term)
	if q.nominate {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (s *fastFailover) send(ctx context.Context, name string, q proposal) (c candidate, agrees bool, err error) {
	conn, err := s.n.config.Dial(ctx, s.n.config.InitialCluster[name])
	if err != nil {
		return c, false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(wire.Seal(q.append(make([]byte, wire.Head)))); err != nil {
		return c, false, err
	}
	frame, err := wire.Read(bufio.NewReader(conn), nil, wire.Short)
	if err != nil {
		return c, false, err
	}
	f := wire.Fields[string]{Rest: string(frame)}
	if !f.More() || f.Kind() != ProposalKind {
		return c, false, fmt.Errorf("%w: answer to a proposal", wire.ErrCorrupt)
	}
	agrees = f.Number() == 1
	c = candidate{name: name, length: f.Number()}
	if c.tells = f.More(); c.tells {
		c.applied = f.Number()
	}
	return c, agrees, f.Err
}

// AnswerProposal takes part in another node's question: frame is the first that came over conn, and of [ProposalKind].
func (n *Node) AnswerProposal(conn net.Conn, frame []byte) error {
	s := n.failover
	f := wire.Fields[string]{Rest: string(frame)}
	f.Kind()
	version := f.Number()
	q := proposal{candidate: candidate{name: f.Bytes(), length: f.Number()}, deadLeader: deadLeader{leader: f.Bytes(), term: f.Number()}}
	q.nominate = f.Number() == 1
	switch {
	case f.Err != nil:
		return f.Err
	case version != proposalVersion || !s.n.fromOther(conn, q.name):
		return fmt.Errorf("proposal of %q, version %d: not taken", q.name, version)
	}
	reply := append(make([]byte, wire.Head), ProposalKind, 0)
	if dead := s.vacant(); dead == q.deadLeader && dead != (deadLeader{}) {
		reply[len(reply)-1] = 1
		if q.nominate {
			// It learns by being told whether that worked.
			_ = s.n.transport.TimeoutNow(raft.ServerID(q.name), raft.ServerAddress(s.n.config.InitialCluster[q.name]),
				&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, &raft.TimeoutNowResponse{})
		}
	}
	self := s.self()
	reply = binary.AppendUvarint(binary.AppendUvarint(reply, self.length), self.applied)
	_, err := conn.Write(wire.Seal(reply))
	return err
}

// fromOther reports whether conn comes from the other member of that name.
func (n *Node) fromOther(conn net.Conn, name string) bool {
	return wire.MayBe(conn, name) && n.config.InitialCluster[name] != "" && name != n.config.Name
}
