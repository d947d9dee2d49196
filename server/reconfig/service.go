// Package reconfig changes who the members of the cluster are, one step at a time, on the leader.
//
// It promises:
//   - [Next] alone decides: the leader's view and the request determine one step, completion, or a refusal in one line;
//   - a request that was interrupted by the loss of a leader is completed by repeating it, as each step is decided on
//     the present view, never on the steps before it;
//   - no step is taken on a configuration other than the one that the step was decided on;
//   - without force no step leaves fewer live voters than a majority; the last voter stays, also with force;
//   - a leader hands over before it loses its vote;
//   - a member gets a vote only after it kept up with the log for several rounds;
//   - at most 32 nodes are members.
//
// The package imports neither raft nor connections: [Cluster] is the leader's raft, [Peers] are the other nodes. It
// starts no goroutine. One request at a time takes steps on a node, under a lock that is held over I/O and whose wait
// ends with the request's context.
//
// Start reading at policy.go and the tables of policy_test.go; executor.go takes the steps, and service.go finds the
// leader.
package reconfig

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Peers are the other nodes.
type Peers interface {
	// Ask sends the request to the node of that ID. After an error the outcome is unknown.
	Ask(ctx context.Context, id string, q Request) (Reply, error)
}

// Service takes requests on any node and passes them to the leader.
type Service struct {
	*Executor
	peers Peers
	asked atomic.Int64 // requests under way that were made on this node
}

// NewService returns the service of a node.
func NewService(e *Executor, peers Peers) *Service { return &Service{Executor: e, peers: peers} }

// leaderTimeout is how long a request waits for a known leader.
const leaderTimeout = 5 * time.Second

// Drain waits until no request that was made on this node is under way, or ctx ends. A node that was removed at the
// request of its own client can so answer it.
func (s *Service) Drain(ctx context.Context) {
	for s.asked.Load() > 0 && pause(ctx) {
	}
}

// Errors of a request that no leader completed.
var (
	// ErrNoLeader reports that no leader was found, and nothing was done.
	ErrNoLeader = errors.New("no leader is known")
	// ErrUncertain reports that the last step may have been taken. Repeating the request completes it.
	ErrUncertain = errors.New("the change may or may not have been made: ask again")
)

// Ask has the leader carry out a request, and the next leader if that one is lost. The reply is the last leader's, with
// the steps of all of them, also if there is an error.
func (s *Service) Ask(ctx context.Context, q Request) (reply Reply, err error) {
	var said []string
	defer func() { reply.Steps = said }()
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
		said, sent = append(said, reply.Steps...), sent || asked
		switch {
		case reply.Error != "":
			return reply, &Refusal{Text: reply.Error}
		case reply.Uncertain:
			return reply, ErrUncertain
		case asked && !reply.NotLeader:
			return reply, nil
		}
		if reply.Request != nil {
			q = *reply.Request
		}
		if time.Since(led) >= leaderTimeout || !pause(ctx) {
			if sent {
				return reply, ErrUncertain
			}
			return reply, ErrNoLeader
		}
	}
}

// askLeader passes the request to the leader that this node knows. If asked is false, there was none.
func (s *Service) askLeader(ctx context.Context, v View, q Request) (reply Reply, asked bool) {
	switch {
	case v.Leads:
		return s.Do(ctx, q), true
	case v.Leader == "" || v.Leader == v.Self:
		return Reply{NotLeader: true}, false
	}
	reply, err := s.peers.Ask(ctx, v.Leader, q)
	if err != nil {
		return Reply{NotLeader: true}, true
	}
	return reply, true
}
