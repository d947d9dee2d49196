package reconfig

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// Cluster is this node's raft, which package raftnode implements for this package.
type Cluster interface {
	// View returns this node's view. The caller owns Nodes.
	View() View
	// Change makes one change of the configuration, provided that after is still the index of the newest one, and returns
	// once the change is committed. After an error the outcome is unknown.
	Change(ctx context.Context, do Action, m members.Member, after uint64) (index uint64, err error)
	// HandOver transfers the leadership to the voter of that ID, and returns once this node has lost it or the voter has
	// not taken it.
	HandOver(ctx context.Context, to string) error
	// TakeState replaces the state of the member of that ID by this leader's. says is the outcome in one line.
	TakeState(ctx context.Context, id string) (says string, err error)
}

// AppliedStep is a step that was taken, for the server's log.
type AppliedStep struct {
	Step
	Request Request
	Index   uint64 // of the configuration; 0 for a hand-over
}

// Executor carries out requests on the leader.
type Executor struct {
	cluster Cluster
	onStep  func(AppliedStep)
	busy    chan struct{} // a lock whose wait ends with a context; full while a request takes steps
}

// NewExecutor returns an executor. onStep is called after each step, and must be quick.
func NewExecutor(c Cluster, onStep func(AppliedStep)) *Executor {
	return &Executor{cluster: c, onStep: onStep, busy: make(chan struct{}, 1)}
}

const (
	// pollInterval is the time between two views while a request waits.
	pollInterval = 20 * time.Millisecond
	// transientTimeout is how long a request waits before it is refused because a member does not answer: a new leader has
	// not heard from all members yet.
	transientTimeout = 2 * time.Second
	// catchUpTimeout is how long a request waits for a member to keep up with the log. For a member that is further behind
	// the request is made again.
	catchUpTimeout = 5 * time.Second
	// requestTimeout bounds a request on one leader.
	requestTimeout = 30 * time.Second
	// maxSteps bounds the steps of a request; the longest takes five.
	maxSteps = 16
)

// Do carries out a request for as long as this node leads.
func (e *Executor) Do(ctx context.Context, q Request) Reply {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w := &execution{Executor: e, ctx: ctx, q: q, left: maxSteps, paces: make(map[string]Pace), began: time.Now()}
	for {
		watch, over := w.runSteps()
		if over {
			return w.reply
		}
		w.paces[watch] = w.watch(watch)
	}
}

// execution is the progress of one request.
type execution struct {
	*Executor
	ctx       context.Context
	q         Request
	left      int // steps that it may still take
	began     time.Time
	stepBegan time.Time       // when the current step began
	paces     map[string]Pace // by ID
	reply     Reply
}

// runSteps takes steps, alone among the requests of this node, until the request is over or a member must be watched
// for the next step.
func (w *execution) runSteps() (watch string, over bool) {
	select {
	case w.busy <- struct{}{}:
		defer func() { <-w.busy }()
	case <-w.ctx.Done():
		w.reply.Error = "another change of members is under way"
		return "", true
	}
	for ; w.left > 0; w.left-- {
		w.stepBegan = time.Now()
		for w.shouldWait() && w.pause() {
		}
		if watch, over = w.step(); watch != "" || over {
			w.left--
			return watch, over
		}
	}
	w.reply.Error = "the members change faster than this can be done"
	return "", true
}

// shouldWait reports whether to wait before the next step, as its refusal may be transient, or as a voter that counts
// as live has not answered since the step began.
func (w *execution) shouldWait() bool {
	v := w.cluster.View()
	switch {
	case !v.Leads || v.Changing || time.Since(w.stepBegan) > transientTimeout:
		return false
	case !w.allAnswered(&v):
		return true
	case time.Since(w.began) > transientTimeout:
		return false
	}
	w.addPaces(v)
	_, refusal := Next(v, v.Pin(w.q))
	return refusal != nil && refusal.Transient
}

// allAnswered reports whether each voter has answered since the current step began, or is known to be silent.
func (w *execution) allAnswered(v *View) bool {
	for _, m := range v.Members {
		if n := v.Nodes[m.ID]; m.Voter && m.ID != v.Self && !n.Silent && n.Heard.Before(w.stepBegan) {
			return false
		}
	}
	return true
}

// step takes the next step and reports whether the request is over. If watch is set, the step needs that member's pace.
func (w *execution) step() (watch string, over bool) {
	v, ok := w.view()
	if !ok {
		return "", true
	}
	step, refusal := Next(v, w.q)
	switch {
	case refusal != nil:
		w.reply.Error = refusal.Text
		return "", true
	case step.Do == Nothing:
		if len(w.reply.Steps) == 0 {
			w.reply.Steps = append(w.reply.Steps, step.Outcome)
		}
		w.reply.Cluster, w.reply.Configuration = v.Cluster, v.Configuration
		return "", true
	case step.Do == Watch:
		return step.Member.ID, false
	}
	return "", w.apply(v, step)
}

// view returns the leader's view once no change is under way. Without ok the request is over: this node does not lead,
// or the change before it took too long.
func (w *execution) view() (v View, ok bool) {
	for {
		v = w.cluster.View()
		w.q = v.Pin(w.q)
		switch {
		case !v.Leads:
			w.redirect(v)
			return v, false
		case !v.Changing:
			w.addPaces(v)
			return v, true
		case !w.pause():
			w.reply.Error = "the change of members before this is not on a majority's disks yet"
			return v, false
		}
	}
}

// addPaces adds the measured paces to a view.
func (w *execution) addPaces(v View) {
	for id, pace := range w.paces {
		n := v.Nodes[id]
		n.Pace = pace
		v.Nodes[id] = n
	}
}

func (w *execution) redirect(v View) {
	w.reply.NotLeader, w.reply.Leader = true, v.Leader
	q := w.q
	w.reply.Request = &q
}

func (w *execution) pause() bool { return pause(w.ctx) }

// pause waits for pollInterval, and reports whether ctx is still alive.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// apply takes a step that changes something, and reports whether the request is over.
func (w *execution) apply(v View, step Step) (over bool) {
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
		w.redirect(now) // the next leader's view has the outcome
		return true
	case now.Index != v.Index:
		return false // another change came first
	}
	w.reply.Error = "raft refuses the change: " + err.Error()
	return true
}

// handOver hands the leadership over, which ends the request on this node. The next leader takes the remaining steps.
func (w *execution) handOver(step Step) {
	err := w.cluster.HandOver(w.ctx, step.Member.ID)
	v := w.cluster.View()
	switch {
	case !v.Leads:
		w.done(step, 0)
		if w.q.Op != Transfer {
			w.redirect(v)
		}
	case w.ctx.Err() != nil:
		w.reply.Error = "the leader could not hand over in time"
	case err != nil:
		w.reply.Error = step.Member.Name() + " did not take the leadership: " + err.Error()
	default:
		w.reply.Error = step.Member.Name() + " did not take the leadership"
	}
}

// takeState replaces a member's state, which ends the request.
func (w *execution) takeState(step Step) {
	says, err := w.cluster.TakeState(w.ctx, step.Member.ID)
	if err != nil {
		w.reply.Error = fmt.Sprintf("%s did not take the state: %v", step.Member.Name(), err)
		return
	}
	step.Outcome = says
	w.done(step, 0)
}

func (w *execution) done(step Step, index uint64) {
	w.reply.Steps = append(w.reply.Steps, step.Outcome)
	w.onStep(AppliedStep{Step: step, Request: w.q, Index: index})
}

// watch measures whether a member keeps up, for catchUpTimeout at most.
func (w *execution) watch(id string) Pace {
	var p pacer
	for until := time.Now().Add(catchUpTimeout); time.Now().Before(until); {
		v := w.cluster.View()
		n, there := v.Nodes[id]
		if !v.Leads || !there {
			return PaceUnknown // the next step decides on a new view
		}
		if p.observe(v.Last, n) {
			return KeepsUp
		}
		if !w.pause() {
			break
		}
	}
	return Lags
}

// pacer decides whether a member keeps up, in rounds as in section 4.2.1 of Ongaro's dissertation: a round ends once
// the member has acknowledged the entry at which the leader's log ended when the round began. A round is good if the
// leader's log is then at most maxLag entries ahead. Several good rounds in a row are enough, however long they took.
type pacer struct {
	began  bool
	target uint64
	heard  time.Time
	good   int
}

const (
	goodRounds = 3
	// maxLag is the most entries by which the leader's log is ahead at the end of a good round.
	maxLag = 256
)

// observe adds an observation, last being the index at which the leader's log ends, and reports whether the member
// keeps up.
func (p *pacer) observe(last uint64, n Node) bool {
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
	if last > n.Match+maxLag {
		p.good = 0
	}
	p.target, p.heard = last, n.Heard
	return p.good >= goodRounds
}
