package reconfig

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// Cluster is this node's raft.
type Cluster interface {
	// View returns what this node sees. Nodes is a copy.
	View() View
	// Change makes one change of the configuration, if after is still the index of the newest one, and returns when the
	// change is committed. An error leaves open whether the change was made.
	Change(ctx context.Context, do Action, m members.Member, after uint64) (index uint64, err error)
	// HandOver has the voter of that ID lead, and returns when this node leads no more, or when the voter does not take
	// the leadership.
	HandOver(ctx context.Context, to string) error
	// TakeState has the member of that ID replace its state by this leader's, and returns what became of that, in a line.
	TakeState(ctx context.Context, id string) (says string, err error)
}

// Taken is a step that was taken, for the log.
type Taken struct {
	Step
	Request Request
	Index   uint64 // of the configuration; 0 for a hand-over
}

// Executor carries requests out on the node that leads.
type Executor struct {
	cluster Cluster
	told    func(Taken)
	busy    chan struct{} // has room while no request is under way
}

// NewExecutor makes an executor. told is called after each step, and must be quick.
func NewExecutor(c Cluster, told func(Taken)) *Executor {
	return &Executor{cluster: c, told: told, busy: make(chan struct{}, 1)}
}

const (
	// glance is between two looks at what others do.
	glance = 20 * time.Millisecond
	// hesitation is how long a member that does not answer may take before a request is refused for that: a new leader
	// has not heard from all members yet.
	hesitation = 2 * time.Second
	// watching is how long a member may take to keep up with the log before a request is refused for that. A member that
	// is further away is asked about again.
	watching = 5 * time.Second
	// longest is how long a request may take on a leader.
	longest = 30 * time.Second
	// mostSteps bounds the steps of a request; the longest takes five.
	mostSteps = 16
)

// Do carries a request out as far as this node leads.
func (e *Executor) Do(ctx context.Context, q Request) Reply {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	w := &work{Executor: e, ctx: ctx, q: q, left: mostSteps, paces: make(map[string]Pace), began: time.Now()}
	for {
		watch, over := w.turn()
		if over {
			return w.reply
		}
		w.paces[watch] = w.watch(watch)
	}
}

// work is a request under way.
type work struct {
	*Executor
	ctx   context.Context
	q     Request
	left  int // steps
	began time.Time
	due   time.Time       // when the step at hand was begun
	paces map[string]Pace // by ID
	reply Reply
}

// turn takes steps while no other request does, until the request is over, or until there is a member to watch.
func (w *work) turn() (watch string, over bool) {
	select {
	case w.busy <- struct{}{}:
		defer func() { <-w.busy }()
	case <-w.ctx.Done():
		w.reply.Refused = "another change of members is under way"
		return "", true
	}
	for ; w.left > 0; w.left-- {
		w.due = time.Now()
		for w.hesitates() && w.pause() {
		}
		if watch, over = w.step(); watch != "" || over {
			w.left--
			return watch, over
		}
	}
	w.reply.Refused = "the members change faster than this can be done"
	return "", true
}

// hesitates reports whether what a request is refused for may be over in a moment, or a voter that counts as one that
// answers may have died a moment ago.
func (w *work) hesitates() bool {
	v := w.cluster.View()
	switch {
	case !v.Leads || v.Changing || time.Since(w.due) > hesitation:
		return false
	case !w.allAnswered(&v):
		return true
	case time.Since(w.began) > hesitation:
		return false
	}
	w.know(v)
	_, refusal := Next(v, v.Pin(w.q))
	return refusal != nil && refusal.Passing
}

// allAnswered reports whether each voter has answered since the step was begun, or is known to be silent.
func (w *work) allAnswered(v *View) bool {
	for _, m := range v.Members {
		if n := v.Nodes[m.ID]; m.Voter && m.ID != v.Self && !n.Silent && n.Heard.Before(w.due) {
			return false
		}
	}
	return true
}

// step takes the next step, and reports whether it was the last, or which member is to be watched before.
func (w *work) step() (watch string, over bool) {
	v, ok := w.view()
	if !ok {
		return "", true
	}
	step, refusal := Next(v, w.q)
	switch {
	case refusal != nil:
		w.reply.Refused = refusal.Text
		return "", true
	case step.Do == Nothing:
		if len(w.reply.Said) == 0 {
			w.reply.Said = append(w.reply.Said, step.Says)
		}
		w.reply.Cluster, w.reply.Configuration = v.Cluster, v.Configuration
		return "", true
	case step.Do == Watch:
		return step.Member.ID, false
	}
	return "", w.take(v, step)
}

// view returns what the leader sees, when no change is under way; else, or if this node does not lead, the request is
// over.
func (w *work) view() (v View, ok bool) {
	for {
		v = w.cluster.View()
		w.q = v.Pin(w.q)
		switch {
		case !v.Leads:
			w.elsewhere(v)
			return v, false
		case !v.Changing:
			w.know(v)
			return v, true
		case !w.pause():
			w.reply.Refused = "the change of members before this is not on a majority's disks yet"
			return v, false
		}
	}
}

// know puts what was watched into a view.
func (w *work) know(v View) {
	for id, pace := range w.paces {
		n := v.Nodes[id]
		n.Pace = pace
		v.Nodes[id] = n
	}
}

func (w *work) elsewhere(v View) {
	w.reply.Elsewhere, w.reply.Leader = true, v.Leader
	q := w.q
	w.reply.Request = &q
}

func (w *work) pause() bool { return pause(w.ctx) }

// pause waits a little, and reports whether there is time left.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(glance)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take takes a step that changes something.
func (w *work) take(v View, step Step) (over bool) {
	switch step.Do {
	case HandOver:
		w.handOver(step)
		return true
	case TakeState:
		w.takeState(step)
		return true
	}
	index, err := w.cluster.Change(w.ctx, step.Do, step.Member, v.Index)
	switch now := w.cluster.View(); {
	case err == nil:
		w.done(step, index)
		return false
	case w.ctx.Err() != nil:
		w.reply.Uncertain = true
		return true
	case !now.Leads:
		w.elsewhere(now) // the next leader finds out what became of it
		return true
	case now.Index != v.Index:
		return false // another change was first
	}
	w.reply.Refused = "raft refuses the change: " + err.Error()
	return true
}

// handOver ends the request on this node. What is left of the request is the next leader's.
func (w *work) handOver(step Step) {
	err := w.cluster.HandOver(w.ctx, step.Member.ID)
	v := w.cluster.View()
	switch {
	case !v.Leads:
		w.done(step, 0)
		if w.q.Op != Transfer {
			w.elsewhere(v)
		}
	case w.ctx.Err() != nil:
		w.reply.Refused = "the leader could not hand over in time"
	case err != nil:
		w.reply.Refused = step.Member.Name() + " did not take the leadership: " + err.Error()
	default:
		w.reply.Refused = step.Member.Name() + " did not take the leadership"
	}
}

// takeState ends the request.
func (w *work) takeState(step Step) {
	says, err := w.cluster.TakeState(w.ctx, step.Member.ID)
	if err != nil {
		w.reply.Refused = fmt.Sprintf("%s did not take the state: %v", step.Member.Name(), err)
		return
	}
	step.Says = says
	w.done(step, 0)
}

func (w *work) done(step Step, index uint64) {
	w.reply.Said = append(w.reply.Said, step.Says)
	w.told(Taken{Step: step, Request: w.q, Index: index})
}

// watch looks whether a member keeps up, until it surely does or the time is over.
func (w *work) watch(id string) Pace {
	var p pacer
	for until := time.Now().Add(watching); time.Now().Before(until); {
		v := w.cluster.View()
		n, there := v.Nodes[id]
		if !v.Leads || !there {
			return Unseen // the next look finds out more
		}
		if p.see(v.Last, n) {
			return KeepsUp
		}
		if !w.pause() {
			break
		}
	}
	return Lags
}

// pacer judges whether a member keeps up, by the progress of the log: in each round the member has to come to where
// the leader's log ended when the round began, and to say so after the round began. A round is good when the leader's
// log has not run away meanwhile. Several good rounds in a row are enough; how long they took does not matter.
type pacer struct {
	began  bool
	target uint64
	heard  time.Time
	good   int
}

const (
	goodRounds = 3
	// reach is how many entries the leader's log may be ahead at the end of a good round.
	reach = 256
)

// see takes another look: last is where the leader's log ends. It reports whether the member keeps up.
func (p *pacer) see(last uint64, n Node) bool {
	if !p.began {
		p.began, p.target, p.heard = true, last, n.Heard
		return false
	}
	if n.Silent {
		p.good = 0
		return false
	}
	if n.Match < p.target || !n.Heard.After(p.heard) {
		return false
	}
	p.good++
	if last > n.Match+reach {
		p.good = 0
	}
	p.target, p.heard = last, n.Heard
	return p.good >= goodRounds
}
