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

// stateAnswer describes the state. Missing reports that the answering node has none, as its own snapshot is missing
// too.
type stateAnswer struct {
	Snapshot store.Snapshot `json:"snapshot"`
	Missing  bool           `json:"missing,omitempty"`
}

const (
	// stateTimeout is how long the other node may take to prepare its state.
	stateTimeout = 2 * time.Minute
	// maxStateBytes is the size of the largest state.
	maxStateBytes = 1 << 40
	// minStateRate is the least rate of a transfer, in bytes a second, after stateGrace.
	minStateRate = 256 << 10
	stateGrace   = 30 * time.Second
	// maxBrokenPause bounds the pause after transfers that failed; the first pause is firstRefusedPause.
	maxBrokenPause = 30 * time.Second
)

// repairSnapshot replaces a damaged or missing snapshot in the folder by the state of another member. Raft is not open,
// so that the node neither votes nor acknowledges meanwhile. An error is one line for the operator: no other member has
// such a state, or the context has ended.
func (n *Node) repairSnapshot(ctx context.Context) error {
	missing := n.config.Folder.Missing()
	if missing == nil {
		return nil
	}
	alone := fmt.Errorf("%w; this node knows no other member that could have the state: see 'holdfast restore'",
		missing.Err)
	if len(n.candidateAddrs()) == 0 {
		return alone
	}
	n.config.Logger.Warn("the newest snapshot is damaged or missing: this node takes no part before another member has "+
		"sent its state",
		"from_index", missing.From, "damage", missing.Damage)
	p := &retry{node: n}
	for {
		met := n.exchangeIdentities(ctx, n.candidateAddrs())
		if n.checkRemoved(met) {
			<-ctx.Done() // the owner ends the node
			return context.Cause(ctx)
		}
		tries := n.fetch(ctx, missing.From, met)
		if len(tries) == 0 {
			return alone // all addresses lead back to this node
		}
		mended, permanent, reasons := false, true, []string(nil)
		for _, t := range tries {
			mended, permanent = mended || t.err == nil, permanent && t.permanent
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
		case permanent:
			return fmt.Errorf("%w; no other member has the state: %s", missing.Err, why)
		}
		if !p.wait(ctx, met, "waiting for a member's state in the place of a damaged snapshot", why) {
			return context.Cause(ctx)
		}
	}
}

// attempt is the outcome of one request for a state.
type attempt struct {
	addr string
	err  error
	// permanent reports that the other node will never have such a state. broken reports that the transfer failed or that
	// its result could not be stored.
	permanent, broken bool
}

// fetch requests a state of one node after the other, until this node has one.
func (n *Node) fetch(ctx context.Context, from uint64, met []exchange) (tries []attempt) {
	for _, m := range met {
		t := attempt{addr: m.addr, err: m.err}
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

// fetchAt fetches and stores the state of one node.
func (n *Node) fetchAt(ctx context.Context, m exchange, from uint64) attempt {
	t, begun := attempt{addr: m.addr}, time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(stateTimeout, func() { cancel(errors.New("its state does not come in time")) })
	defer slow.Stop()
	answer, state, err := n.openState(ctx, m.addr, from)
	var remote *memberrpc.RemoteError
	if err != nil {
		t.err, t.permanent = err, errors.As(err, &remote) && remote.Unknown
		return t
	}
	defer state.Close()
	size := answer.Snapshot.Bytes
	if err := n.checkState(&answer); err != nil {
		t.err, t.permanent, t.broken = err, answer.Missing, !answer.Missing
		return t
	}
	slow.Reset(stateGrace + time.Duration(size/minStateRate)*time.Second)
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

// checkState returns an error if the state that another member offers cannot become this node's.
func (n *Node) checkState(answer *stateAnswer) error {
	switch conf := answer.Snapshot.Members; {
	case answer.Missing:
		return errors.New("its newest snapshot is missing or damaged, too")
	case answer.Snapshot.Bytes < 0 || answer.Snapshot.Bytes > maxStateBytes || len(conf.Members) > maxMembers:
		return errors.New("its description of the state makes no sense")
	case n.isExcluded(conf):
		return errors.New("its state does not have this node as a member")
	}
	return nil
}

// State opens the committed state of another member that ends at the index from or later, for a node whose raft is
// open. The caller closes the stream.
func (n *Node) State(ctx context.Context, m members.Member, from uint64) (store.Snapshot, io.ReadCloser, error) {
	answer, state, err := n.openState(ctx, m.Addr, from)
	if err != nil {
		return store.Snapshot{}, nil, err
	}
	if err := n.checkState(&answer); err != nil {
		return store.Snapshot{}, nil, errors.Join(err, state.Close())
	}
	return answer.Snapshot, state, nil
}

// openState requests the state of the node at an address. The answer takes as long as a snapshot; meanwhile this node
// exchanges identities with the other one at every introductionTimeout, and gives up if that has frozen, as another may
// have the state.
func (n *Node) openState(ctx context.Context, addr string, from uint64) (stateAnswer, io.ReadCloser, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	answered := make(chan struct{})
	go func() {
		timer := time.NewTicker(introductionTimeout)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-answered:
				return
			}
			if m := n.exchangeIdentity(ctx, addr); m.err != nil {
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
	return answer, &stateStream{state, giveUp}, nil
}

// stateStream is the transfer of a state. Closing it ends the transfer's context.
type stateStream struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends the transfer.
func (o *stateStream) Close() error {
	err := o.ReadCloser.Close()
	o.end(nil)
	return err
}

// isExcluded reports whether a committed configuration shows that this node has been removed.
func (n *Node) isExcluded(conf members.Configuration) bool {
	return isRemoved(n.config.Folder.Identity(), conf, n.config.Committed(), n.config.Newest())
}

// serveState sends this node's committed state to a member whose newest snapshot is missing.
func (n *Node) serveState(_ context.Context, from memberrpc.Caller, q stateQuestion) (stateAnswer, io.ReadCloser,
	error,
) {
	switch {
	case n.config.Folder.Missing() != nil:
		return stateAnswer{Missing: true}, nil, nil
	case !n.newestConfiguration().Has(from.ID):
		return stateAnswer{}, nil, fmt.Errorf("%s is no member, as far as is known here", from.ID)
	}
	snapshot, state, err := n.config.State(q.From)
	if err != nil {
		return stateAnswer{}, nil, err
	}
	return stateAnswer{Snapshot: snapshot}, state, nil
}
