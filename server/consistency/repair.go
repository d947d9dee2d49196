package consistency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
)

// Repaired says what became of a repair.
type Repaired struct {
	// Index is where the state ends that took the place of the member's; 0: it is under way still.
	Index uint64 `json:"index,omitempty"`
	// Compared: the state was compared since, and is a majority's.
	Compared bool `json:"compared,omitempty"`
}

// repair is the replacement of this node's state.
type repair struct {
	over chan struct{} // closed when done and err are good
	done Repaired
	err  error
}

const (
	// repairWithin bounds a repair.
	repairWithin = time.Hour
	// comparedWithin is how long a repair waits until the state was compared: the next index may be named after minGap.
	comparedWithin = 15 * time.Second
)

// Repair has the member of that ID replace its state by the leader's. When ctx ends before, the member goes on, and
// asking again waits for the same repair.
func (c *Checker) Repair(ctx context.Context, id string) (Repaired, error) {
	if id == c.config.Self {
		return c.repairSelf(ctx)
	}
	c.noteQuarantine(id, true) // before the member is: nobody may count on it to lead
	done, err := memberrpc.Call[Repaired](ctx, c.config.Client, id, opRepair, struct{}{})
	c.surveyNow()
	if remote := (&memberrpc.RemoteError{}); ctx.Err() != nil && !errors.As(err, &remote) {
		return Repaired{}, nil
	}
	return done, err
}

// repairSelf waits for the repair that is under way, or begins one.
func (c *Checker) repairSelf(ctx context.Context) (Repaired, error) {
	c.mu.Lock()
	is := c.repair
	if is == nil {
		is = &repair{over: make(chan struct{})}
		c.repair = is
		c.repairs <- is // has room: one is under way at a time
	}
	c.mu.Unlock()
	select {
	case <-is.over:
		return is.done, is.err
	case <-ctx.Done():
		return Repaired{}, nil
	}
}

// repairAll carries repairs out.
func (c *Checker) repairAll(ctx context.Context) {
	for {
		select {
		case is := <-c.repairs:
			is.done, is.err = c.replace(ctx)
			c.mu.Lock()
			c.repair = nil
			c.mu.Unlock()
			close(is.over)
		case <-ctx.Done():
			return
		}
	}
}

// replace replaces this node's state by the leader's, and waits a while until it was compared. A node that is not in
// quarantine is put there first: no majority may be able to say which member is wrong.
func (c *Checker) replace(ctx context.Context) (done Repaired, err error) {
	ctx, cancel := context.WithTimeout(ctx, repairWithin)
	defer cancel()
	r := c.config.Replica()
	if r == nil {
		return done, errors.New("this node has no state yet")
	}
	st := r.Status()
	leader, known := r.Configuration().Find(st.Leader.ID)
	switch {
	case st.Leading || leader.ID == c.config.Self:
		return done, errors.New("this node leads: have another one lead first (holdfast cluster transfer)")
	case !known:
		return done, errors.New("no leader is known whose state could be taken")
	}
	if err := c.quarantine(ctx, r, r.Reached()); err != nil {
		return done, err
	}
	// A snapshot from before a change of members that this node knows would take it back behind that change.
	from := max(r.Reached(), r.Configuration().Index)
	snapshot, state, err := c.config.Fetch(ctx, leader, from)
	if err != nil {
		return done, fmt.Errorf("fetch the state of %s: %w", leader.Name(), err)
	}
	defer state.Close()
	spooled, err := c.config.Folder.Spool(state, snapshot.Bytes)
	if err != nil {
		return done, fmt.Errorf("fetch the state of %s: %w", leader.Name(), err)
	}
	defer spooled.Close()
	if err := r.ReplaceState(ctx, snapshot, spooled); err != nil {
		return done, err
	}
	done.Index = snapshot.Index
	c.config.OnEvent(Replaced{Index: snapshot.Index, From: leader.Name()})
	c.wantCheck(0)
	done.Compared = c.awaitRelease(ctx, r)
	return done, nil
}

// awaitRelease waits a while until the node is in quarantine no more.
func (c *Checker) awaitRelease(ctx context.Context, r Replica) bool {
	ctx, cancel := context.WithTimeout(ctx, comparedWithin)
	defer cancel()
	for {
		c.mu.Lock()
		moved := c.moved
		c.mu.Unlock()
		if on, _ := r.Quarantined(); !on {
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}
