// Package reconfig changes who the members of the cluster are, one step at a time, on the leader.
//
// It promises:
//   - [Next] alone decides: from what the leader sees and what is asked follows one step, that all is done, or a
//     refusal in one line;
//   - what was half done when a leader was lost is completed by asking again, as each step is decided from what is,
//     never from what was done before;
//   - no step is taken on a configuration other than the one that the step was decided on;
//   - without force no step leaves fewer voters that answer than a majority of the voters needs; the last voter stays,
//     also with force;
//   - a leader hands over before it loses its vote;
//   - a member gets a vote only after it kept up with the log for several rounds;
//   - at most 32 nodes are members.
//
// The package knows neither raft nor connections: [Cluster] is the leader's raft, [Peers] are the other nodes. There
// are no goroutines. A single lock lets one request at a time work on a node; it is held over I/O, and waiting for the
// lock ends with the request's context.
//
// Start reading at policy.go, then policy_test.go, whose tables can be read aloud; executor.go takes the steps, and
// service.go finds the leader.
package reconfig

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Peers are the other nodes.
type Peers interface {
	// Ask has the node of that ID carry the request out. An error leaves open whether it did.
	Ask(ctx context.Context, id string, q Request) (Reply, error)
}

// Service takes requests on any node, and has the leader carry them out.
type Service struct {
	*Executor
	peers Peers
	asked atomic.Int64 // requests under way
}

// NewService makes the service of a node.
func NewService(e *Executor, peers Peers) *Service { return &Service{Executor: e, peers: peers} }

// leaderWithin is how long a request waits for a leader to be known.
const leaderWithin = 5 * time.Second

// Drain waits until no request that was taken here is under way, or ctx ends. So a node can answer the client that had
// the node itself removed.
func (s *Service) Drain(ctx context.Context) {
	for s.asked.Load() > 0 && pause(ctx) {
	}
}

// Errors of a request whose end is not known.
var (
	// ErrNoLeader: no leader could be asked; nothing was done.
	ErrNoLeader = errors.New("no leader is known")
	// ErrUncertain: the last step may have been taken. Asking again completes the request.
	ErrUncertain = errors.New("the change may or may not have been made: ask again")
)

// Ask carries a request out, wherever the leader is, and goes on at the next leader when one is lost. The reply is the
// last one; it says all that was done, also when there is an error.
func (s *Service) Ask(ctx context.Context, q Request) (reply Reply, err error) {
	var said []string
	defer func() { reply.Said = said }()
	s.asked.Add(1)
	defer s.asked.Add(-1)
	sent, pinned, led := false, q.Op == Join, time.Now()
	for {
		v := s.cluster.View()
		if v.Leads || v.Leader != "" {
			led = time.Now()
		}
		if !pinned && (v.Leads || v.Leader != "") {
			q, pinned = v.Pin(q), true
		}
		var asked bool
		reply, asked = s.askLeader(ctx, v, q)
		said, sent = append(said, reply.Said...), sent || asked
		switch {
		case reply.Refused != "":
			return reply, &Refusal{Text: reply.Refused}
		case reply.Uncertain:
			return reply, ErrUncertain
		case asked && !reply.Elsewhere:
			return reply, nil
		}
		if reply.Request != nil {
			q = *reply.Request
		}
		if time.Since(led) >= leaderWithin || !pause(ctx) {
			if sent {
				return reply, ErrUncertain
			}
			return reply, ErrNoLeader
		}
	}
}

// askLeader asks the leader that this node knows. asked: the reply, or the lack of one, is the leader's.
func (s *Service) askLeader(ctx context.Context, v View, q Request) (reply Reply, asked bool) {
	switch {
	case v.Leads:
		return s.Do(ctx, q), true
	case v.Leader == "" || v.Leader == v.Self:
		return Reply{Elsewhere: true}, false
	}
	reply, err := s.peers.Ask(ctx, v.Leader, q)
	if err != nil {
		return Reply{Elsewhere: true}, true
	}
	return reply, true
}
