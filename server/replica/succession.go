package replica

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

// succession shortens the time without a leader after the leader's process died.
//
// Raft finds that out by silence, and must be patient with silence: a busy
// machine is silent, too. But a process that dies closes its connections, and its
// port refuses new ones. A node that sees both asks the others; when a
// majority sees the same, and nobody among them is fitter, one of the others tells it
// to have itself elected at once, by the message that transfers leadership. Fitter is who has the
// longer log, without which it would not be elected, and then who has applied more of it: a node
// that was started a moment ago may need seconds for that before it serves.
//
// Nothing here can harm more than an election does: votes and logs are as ever.
// That a majority must agree keeps a node that is alone refused by a healthy leader from
// deposing it, again and again.
type succession struct {
	r    *Replica
	wake chan struct{}

	mu   sync.Mutex
	dead legacy
}

// legacy is a leadership whose leader's process is gone. The zero value is none.
type legacy struct {
	leader string
	term   uint64
}

// How long and how often the others are asked.
const (
	askEvery  = 20 * time.Millisecond
	askWithin = 500 * time.Millisecond
)

func newSuccession(r *Replica) *succession {
	return &succession{r: r, wake: make(chan struct{}, 1)}
}

// refused is told that leader's port refused a connection.
func (s *succession) refused(leader string) {
	s.mu.Lock()
	s.dead = legacy{leader: leader, term: s.r.raft.CurrentTerm()}
	s.mu.Unlock()
	notify(s.wake)
}

// alive is told that leader was reached.
func (s *succession) alive(leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead.leader == leader {
		s.dead = legacy{}
	}
}

// vacant returns the leadership that is known to be without its leader, as long as
// there has been no other since.
func (s *succession) vacant() legacy {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, leader := s.r.raft.LeaderWithID()
	if s.r.raft.CurrentTerm() != s.dead.term || leader != "" && string(leader) != s.dead.leader {
		s.dead = legacy{}
	}
	return s.dead
}

func (s *succession) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if dead := s.vacant(); dead != (legacy{}) {
			s.stand(ctx, dead)
			timer.Reset(askEvery)
		}
	}
}

// stand asks the others, and has itself nominated if this node is the one.
func (s *succession) stand(ctx context.Context, dead legacy) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	own := ballot{candidate: s.self(), legacy: dead}
	var mu sync.Mutex
	var agree []string
	best := true
	var asks sync.WaitGroup
	for name := range s.r.config.InitialCluster {
		if name == own.name || name == dead.leader {
			continue
		}
		asks.Go(func() {
			other, agrees, err := s.ask(ctx, name, own)
			if err != nil || !agrees {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			agree = append(agree, name)
			best = best && own.fitter(other)
		})
	}
	asks.Wait()
	if !best || len(agree) < s.r.acks.quorum || s.vacant() != dead {
		return
	}
	own.nominate = true
	_, _, _ = s.ask(ctx, agree[0], own) // if it fails, the next attempt is in a moment
}

// candidate is a node that may be elected.
type candidate struct {
	name    string
	length  uint64 // of its log
	applied uint64 // how much of it, as far as the node tells
	tells   bool   // older releases do not
}

// fitter reports whether c rather than o is to be elected. The names decide between equals.
func (c candidate) fitter(o candidate) bool {
	switch {
	case c.length != o.length:
		return c.length > o.length
	case c.tells && o.tells && c.applied != o.applied:
		return c.applied > o.applied
	default:
		return c.name < o.name
	}
}

func (s *succession) self() candidate {
	return candidate{name: s.r.config.Name, length: s.r.raft.LastIndex(), applied: s.r.raft.AppliedIndex(), tells: true}
}

// ballot is the question that one node asks another. The answer is whether that
// one sees the same, and what it is as a candidate.
type ballot struct {
	candidate
	legacy        // what it found
	nominate bool // send it TimeoutNow
}

func (q ballot) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, kindBallot), linkVersion)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, q.name), q.length)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, q.leader), q.term)
	if q.nominate {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (s *succession) ask(ctx context.Context, name string, q ballot) (c candidate, agrees bool, err error) {
	conn, err := s.r.config.Peers.Forward.DialContext(ctx, s.r.config.InitialCluster[name])
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
	if !f.More() || f.Kind() != kindBallot {
		return c, false, fmt.Errorf("%w: answer to a ballot", wire.ErrCorrupt)
	}
	agrees = f.Number() == 1
	c = candidate{name: name, length: f.Number()}
	if c.tells = f.More(); c.tells {
		c.applied = f.Number()
	}
	return c, agrees, f.Err
}

// answer takes part in another node's question.
func (s *succession) answer(conn net.Conn, frame []byte) error {
	f := wire.Fields[string]{Rest: string(frame)}
	f.Kind()
	version := f.Number()
	q := ballot{candidate: candidate{name: f.Bytes(), length: f.Number()}, legacy: legacy{leader: f.Bytes(), term: f.Number()}}
	q.nominate = f.Number() == 1
	switch {
	case f.Err != nil:
		return f.Err
	case version != linkVersion || !s.r.authentic(conn, q.name):
		return fmt.Errorf("ballot of %q, version %d: not taken", q.name, version)
	}
	reply := append(make([]byte, wire.Head), kindBallot, 0)
	if dead := s.vacant(); dead == q.legacy && dead != (legacy{}) {
		reply[len(reply)-1] = 1
		if q.nominate {
			// It learns by being told whether that worked.
			_ = s.r.transport.TimeoutNow(raft.ServerID(q.name), raft.ServerAddress(s.r.config.InitialCluster[q.name]),
				&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, &raft.TimeoutNowResponse{})
		}
	}
	self := s.self()
	reply = binary.AppendUvarint(binary.AppendUvarint(reply, self.length), self.applied)
	_, err := conn.Write(wire.Seal(reply))
	return err
}
