package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// opState is the request for a committed state, which follows the answer as a stream.
const opState = "state"

// stateQuestion asks for a state that ends at the index From or later.
type stateQuestion struct {
	From uint64 `json:"from"`
}

// stateAnswer describes the state. Mends: there is none, as the snapshot of the node that was asked is missing, too.
type stateAnswer struct {
	Snapshot store.Snapshot `json:"snapshot"`
	Mends    bool           `json:"mends,omitempty"`
}

const (
	// stateWithin is how long the node that is asked may take to have its state ready.
	stateWithin = 2 * time.Minute
	// stateBytes bounds a state, in bytes.
	stateBytes = 1 << 40
	// stateRate is how fast a state has to come at least, in bytes a second, after stateDelay.
	stateRate  = 256 << 10
	stateDelay = 30 * time.Second
	// mostBrokenPause bounds the pause after states that did not come whole; the first is firstRefusedPause.
	mostBrokenPause = 30 * time.Second
)

// mend has the state of another member take the place of the snapshot that the folder misses, if it misses one. Raft is
// not open, so that the node neither votes nor acknowledges meanwhile. The error is one line for the operator: no other
// member has such a state, or the context has ended.
func (n *Node) mend(ctx context.Context) error {
	missing := n.config.Folder.Missing()
	if missing == nil {
		return nil
	}
	alone := fmt.Errorf("%w; this node knows no other member that could have the state: see 'holdfast restore'",
		missing.Err)
	if len(n.known()) == 0 {
		return alone
	}
	n.config.Logger.Warn("the newest snapshot is damaged or missing: this node takes no part before another member has "+
		"sent its state",
		"from_index", missing.From, "damage", missing.Damage)
	p := &patience{node: n}
	for {
		met := n.meet(ctx, n.known())
		if n.checkRemoved(met) {
			<-ctx.Done() // the owner ends the node
			return context.Cause(ctx)
		}
		tries := n.fetch(ctx, missing.From, met)
		if len(tries) == 0 {
			return alone // all addresses lead back to this node
		}
		mended, hopeless, reasons := false, true, []string(nil)
		for _, t := range tries {
			mended, hopeless = mended || t.err == nil, hopeless && t.hopeless
			if t.broken {
				p.broken++
				n.config.Logger.Warn("cannot take the state of another member", "peer_addr", t.addr, "error", t.err)
			}
			if t.err != nil {
				reasons = append(reasons, t.addr+": "+t.err.Error())
			}
		}
		why := strings.Join(reasons, "; ")
		switch {
		case mended:
			return nil
		case hopeless:
			return fmt.Errorf("%w; no other member has the state: %s", missing.Err, why)
		}
		if !p.wait(ctx, met, "waiting for a member's state in the place of a damaged snapshot", why) {
			return context.Cause(ctx)
		}
	}
}

// try is what became of the question for a state.
type try struct {
	addr string
	err  error
	// hopeless: the node that was asked will not have one. broken: the state did not come whole, or could not be stored.
	hopeless, broken bool
}

// fetch asks one node after the other, until this node has a state.
func (n *Node) fetch(ctx context.Context, from uint64, met []meeting) (tries []try) {
	for _, m := range met {
		t := try{addr: m.addr, err: m.err}
		switch {
		case m.err != nil:
		case m.Cluster != n.config.Folder.Identity().ClusterID:
			t.err = errors.New("it is no member of this node's cluster")
		default:
			t = n.fetchAt(ctx, m, from)
		}
		if tries = append(tries, t); t.err == nil {
			break
		}
	}
	return tries
}

// fetchAt fetches the state of the node at an address, if that has one.
func (n *Node) fetchAt(ctx context.Context, m meeting, from uint64) try {
	t, begun := try{addr: m.addr}, time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(stateWithin, func() { cancel(errors.New("its state does not come in time")) })
	defer slow.Stop()
	answer, state, err := n.openState(ctx, m.addr, from)
	var remote *memberrpc.RemoteError
	if err != nil {
		t.err, t.hopeless = err, errors.As(err, &remote) && remote.Unknown
		return t
	}
	defer state.Close()
	size := answer.Snapshot.Bytes
	if err := n.unfit(&answer); err != nil {
		t.err, t.hopeless, t.broken = err, answer.Mends, !answer.Mends
		return t
	}
	slow.Reset(stateDelay + time.Duration(size/stateRate)*time.Second)
	if err := n.config.Folder.Mend(answer.Snapshot, io.LimitReader(state, size+1)); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		t.err, t.broken = err, true
		return t
	}
	n.config.Logger.Warn("the damaged snapshot was replaced by the state of another member",
		"member", members.Name(m.ID), "index", answer.Snapshot.Index, "term", answer.Snapshot.Term, "bytes", size,
		"took", time.Since(begun).Round(time.Millisecond))
	return t
}

// unfit is why a state that another member offers cannot be this node's.
func (n *Node) unfit(answer *stateAnswer) error {
	switch conf := answer.Snapshot.Members; {
	case answer.Mends:
		return errors.New("its newest snapshot is missing or damaged, too")
	case answer.Snapshot.Bytes < 0 || answer.Snapshot.Bytes > stateBytes || len(conf.Members) > maxMembers:
		return errors.New("its description of the state makes no sense")
	case n.excluded(conf):
		return errors.New("its state does not have this node as a member")
	}
	return nil
}

// State opens the committed state of another member that ends at from or later, for a node whose raft is open.
func (n *Node) State(ctx context.Context, m members.Member, from uint64) (store.Snapshot, io.ReadCloser, error) {
	answer, state, err := n.openState(ctx, m.Addr, from)
	if err != nil {
		return store.Snapshot{}, nil, err
	}
	if err := n.unfit(&answer); err != nil {
		return store.Snapshot{}, nil, errors.Join(err, state.Close())
	}
	return answer.Snapshot, state, nil
}

// openState asks the node at an address for its state. Until the answer comes, which takes as long as a snapshot, the
// node is asked who it is, too: one that has frozen is given up, as another may have the state.
func (n *Node) openState(ctx context.Context, addr string, from uint64) (stateAnswer, io.ReadCloser, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	answered := make(chan struct{})
	go func() {
		timer := time.NewTicker(askWithin)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-answered:
				return
			}
			if m := n.meetAt(ctx, addr); m.err != nil {
				giveUp(fmt.Errorf("it answers no more: %w", m.err))
				return
			}
		}
	}()
	answer, state, err := memberrpc.CallStreamAt[stateAnswer](ctx, n.config.Client, addr, opState, stateQuestion{from})
	close(answered)
	if err != nil {
		giveUp(nil)
		return answer, nil, err
	}
	return answer, &opened{state, giveUp}, nil
}

// opened is a state that comes. Its context ends with it.
type opened struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends the stream.
func (o *opened) Close() error {
	err := o.ReadCloser.Close()
	o.end(nil)
	return err
}

// excluded reports whether this node, which was a member, is none any more in a committed configuration.
func (n *Node) excluded(conf members.Configuration) bool {
	return gone(n.config.Folder.Identity(), conf, n.config.Committed(), n.config.Newest())
}

// serveState answers a member whose newest snapshot is missing.
func (n *Node) serveState(_ context.Context, from memberrpc.Caller, q stateQuestion) (stateAnswer, io.ReadCloser,
	error,
) {
	switch {
	case n.config.Folder.Missing() != nil:
		return stateAnswer{Mends: true}, nil, nil
	case !n.newest().Has(from.ID):
		return stateAnswer{}, nil, fmt.Errorf("%s is no member, as far as is known here", from.ID)
	}
	snapshot, state, err := n.config.State(q.From)
	if err != nil {
		return stateAnswer{}, nil, err
	}
	return stateAnswer{Snapshot: snapshot}, state, nil
}
