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

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// fastFailover shortens the time without a leader after the leader's process died.
//
// Raft detects a dead leader by its silence, for which the timeout must be long, since a busy machine is silent, too.
// But when a process dies, its connections are closed and its port refuses new ones. A node that observes both asks the
// other nodes. If a majority agrees, and none of them is more up to date, one of them tells the asking node to start an
// election at once, by the message that transfers leadership (TimeoutNow).
//
// That is as safe as any election. The majority prevents a node whose connections alone are refused from deposing a
// healthy leader again and again.
type fastFailover struct {
	self           string
	configurations *configurations
	dial           func(ctx context.Context, id string) (net.Conn, error)
	raft           raftView
	// nominate sends TimeoutNow to a node.
	nominate func(id string) error
	wake     chan struct{}

	mu   sync.Mutex
	dead deadLeader
}

// raftView is the part of raft that fastFailover reads. Tests implement it, too.
type raftView interface {
	CurrentTerm() uint64
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	LastIndex() uint64
	AppliedIndex() uint64
}

// appliedView is raft with the index that the state machine has applied. Raft's own index includes entries that wait
// for the state machine.
type appliedView struct {
	*raft.Raft
	applier *applier
}

// AppliedIndex returns the index of the newest applied entry, or 0 in quarantine, where the state is unusable.
func (v appliedView) AppliedIndex() uint64 {
	if v.applier.quarantine.on() {
		return 0
	}
	return v.applier.index.Load()
}

// The interval and the timeout of asking the other nodes.
const (
	askEvery  = 20 * time.Millisecond
	askWithin = 500 * time.Millisecond
)

func newFastFailover(c *Config, known *configurations, opened raftView, nominate func(id string) error) *fastFailover {
	return &fastFailover{
		self: c.ID, configurations: known,
		dial: c.Dial, raft: opened, nominate: nominate, wake: make(chan struct{}, 1),
	}
}

// refused records that leader's port refused a connection.
func (f *fastFailover) refused(leader string) {
	f.mu.Lock()
	f.dead = deadLeader{leader: leader, term: f.raft.CurrentTerm()}
	f.mu.Unlock()
	notify(f.wake)
}

// reached records that leader was reached.
func (f *fastFailover) reached(leader string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead.leader == leader {
		f.dead = deadLeader{}
	}
}

// vacant returns the current leadership if its leader is known to be dead, and else the zero value.
func (f *fastFailover) vacant() deadLeader {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, leader := f.raft.LeaderWithID()
	if f.raft.CurrentTerm() != f.dead.term || leader != "" && string(leader) != f.dead.leader {
		f.dead = deadLeader{}
	}
	return f.dead
}

func (f *fastFailover) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.wake:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if dead := f.vacant(); dead != (deadLeader{}) {
			f.ask(ctx, dead)
			timer.Reset(askEvery)
		}
	}
}

// ask sends the other voters a proposal to elect this node. If a majority agrees that the leader is dead, and none of
// these voters is more up to date, one of them nominates this node. A node without a vote does nothing.
func (f *fastFailover) ask(ctx context.Context, dead deadLeader) {
	view := f.configurations.view()
	if !view.voter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	own := proposal{candidate: f.candidate(), deadLeader: dead}
	var agreed []string
	best := true
	f.poll(ctx, view.Members, own, func(other candidate, agrees bool) {
		if agrees {
			agreed = append(agreed, other.id)
			best = best && own.moreUpToDate(other)
		}
	})
	if !best || len(agreed) < max(view.others, 1) || f.vacant() != dead || f.configurations.view() != view {
		return
	}
	own.nominate = true
	_, _, _ = f.send(ctx, agreed[0], own) // run retries soon
}

// poll asks the voters among the members, except this node and the dead leader, and calls take with each answer, one at
// a time.
func (f *fastFailover) poll(ctx context.Context, of []members.Member, p proposal, take func(c candidate, agrees bool)) {
	var mu sync.Mutex
	var asks sync.WaitGroup
	for _, m := range of {
		if !m.Voter || m.ID == f.self || m.ID == p.leader {
			continue
		}
		asks.Go(func() {
			c, agrees, err := f.send(ctx, m.ID, p)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			take(c, agrees)
		})
	}
	asks.Wait()
}

func (f *fastFailover) candidate() candidate {
	return candidate{id: f.self, length: f.raft.LastIndex(), applied: f.raft.AppliedIndex()}
}

// moreUpToDate reports whether c should be elected rather than o. The longer log decides, since the other node could
// not win; then the higher applied index, since a node that has just started may need seconds to apply the log before
// it serves; then the lower ID.
func (c candidate) moreUpToDate(o candidate) bool {
	switch {
	case c.length != o.length:
		return c.length > o.length
	case c.applied != o.applied:
		return c.applied > o.applied
	default:
		return c.id < o.id
	}
}

// send sends a node the question and returns its answer.
func (f *fastFailover) send(ctx context.Context, id string, p proposal) (c candidate, agrees bool, err error) {
	conn, err := f.dial(ctx, id)
	if err != nil {
		return c, false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(wire.Seal(p.append(make([]byte, wire.Head)))); err != nil {
		return c, false, err
	}
	frame, err := wire.Read(bufio.NewReader(conn), nil, wire.Short)
	if err != nil {
		return c, false, err
	}
	in := wire.Fields[string]{Rest: string(frame)}
	if !in.More() || in.Kind() != proposalKind {
		return c, false, fmt.Errorf("%w: answer to a proposal", wire.ErrCorrupt)
	}
	agrees = in.Number() == 1
	return candidate{id: id, length: in.Number(), applied: in.Number()}, agrees, in.Err
}

// answer answers another node's question, and nominates that node if the question says so and this node agrees.
func (f *fastFailover) answer(conn net.Conn, frame []byte) error {
	in := wire.Fields[string]{Rest: string(frame)}
	in.Kind()
	version := in.Number()
	p := proposal{candidate: candidate{id: in.Bytes(), length: in.Number()}, deadLeader: deadLeader{
		leader: in.Bytes(),
		term:   in.Number(),
	}}
	p.nominate = in.Number() == 1
	switch {
	case in.Err != nil:
		return in.Err
	case version != proposalVersion || !f.fromOther(conn, p.id):
		return fmt.Errorf("proposal of %q, version %d: not taken", p.id, version)
	}
	reply := append(make([]byte, wire.Head), proposalKind, 0)
	if dead := f.vacant(); dead == p.deadLeader && dead != (deadLeader{}) && f.configurations.view().voter {
		reply[len(reply)-1] = 1
		if p.nominate {
			_ = f.nominate(p.id) // the asking node notices the result itself
		}
	}
	own := f.candidate()
	reply = binary.AppendUvarint(binary.AppendUvarint(reply, own.length), own.applied)
	_, err := conn.Write(wire.Seal(reply))
	return err
}

// fromOther reports whether conn may come from the node id, and id is another voter.
func (f *fastFailover) fromOther(conn net.Conn, id string) bool {
	return wire.MayBe(conn, id) && id != f.self && f.configurations.view().IsVoter(id)
}

// The messages of fast failover, one per frame (package wire). The stream also carries clients' requests to the leader;
// the first byte distinguishes them.
//
//	question  kind, version, bytes ID, length of log, bytes leader, term, whether to nominate
//	answer    kind, whether that node agrees, length of its log, how much of it is applied
const (
	proposalKind    = 'b'
	proposalVersion = 1
)

// proposal is the question to another node. The answer says whether that node agrees, and describes it as a candidate.
type proposal struct {
	candidate
	deadLeader      // the leadership that the asking node observed
	nominate   bool // send TimeoutNow to the asking node
}

func (p proposal) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, proposalKind), proposalVersion)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, p.id), p.length)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, p.leader), p.term)
	if p.nominate {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func isProposal(frame []byte) bool { return len(frame) > 0 && frame[0] == proposalKind }

// candidate is a node that may be elected, with the state of its log.
type candidate struct {
	id      string
	length  uint64 // of the candidate's log
	applied uint64 // index of the newest applied entry
}

// deadLeader is a leadership whose leader's process is dead. The zero value is none.
type deadLeader struct {
	leader string
	term   uint64
}
