package replica

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/sessions"
)

// waiting manages the clients that wait for keys: those of this node and, on the leader, those of silent nodes. It
// sleeps while no client waits.
type waiting struct {
	waitingConfig
	clients *sessions.Clients
	wake    chan struct{}
	// awake is set while run checks every second.
	awake atomic.Bool
	// led is set if there was a leader since the last check.
	led atomic.Bool
	silence
}

// waitingConfig has the functions and values that waiting needs.
type waitingConfig struct {
	origin      protocol.Incarnation
	machine     fsm.Machine
	serving     *atomic.Pointer[leaderTerm]
	absentAfter time.Duration
	execute     func(*Batch) error
	leader      func() (term uint64, leader string)
	// heard reports whether this leader of a term has heard of a node since an instant.
	heard func(node string, term uint64, since time.Time) bool
	dial  func(ctx context.Context, node string) (net.Conn, error)
	event func(Event)
}

// silence has the times since which run has found a condition true, or zero.
type silence struct {
	term     uint64    // the leadership of this node
	leading  time.Time // this node leads in that term
	leadless time.Time // there is no leader, as far as this node knows
	checked  time.Time // the last check
}

// checkEvery is the interval of checks for silent nodes.
const checkEvery = time.Second

const (
	// deadAfter is the time of silence after which this leader checks whether the node's process is gone. dialWithin
	// bounds the check.
	deadAfter  = time.Second
	dialWithin = 200 * time.Millisecond
)

// newWaiting also creates the clients, which use cluster.
func newWaiting(c waitingConfig, cluster sessions.Cluster) *waiting {
	w := &waiting{waitingConfig: c, wake: make(chan struct{}, 1)}
	subscribe := cluster.SubscribeWaiting
	cluster.SubscribeWaiting = func(yes bool) {
		subscribe(yes)
		if yes {
			notify(w.wake)
		}
	}
	w.clients = sessions.New(cluster)
	return w
}

// errLags is the error if this node's copy of the state did not reach a request in time.
var errLags = errors.New("this node lags")

// events passes the ends of waits to the clients of this node.
func (w *waiting) events(events []event.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == event.Woken {
			w.clients.Waiters.Woken(e.Seq, *e.Reply)
		}
	}
}

// reached is called when the state has changed.
func (w *waiting) reached() {
	if !w.awake.Load() && w.machine.Waiting() {
		notify(w.wake)
	}
}

func (w *waiting) run(ctx context.Context) error {
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.check(time.Now())
		// The two conditions are read in one call: a client that leaves and one that enters in between would wake nothing.
		some := w.clients.Waiters.UnsubscribeIdle() || w.machine.Waiting()
		w.awake.Store(some)
		if some {
			timer.Reset(checkEvery)
		} else if w.machine.Waiting() {
			notify(w.wake) // a client may have entered before awake was set
		}
	}
}

// check handles silent nodes. After a pause, for example if this process was frozen, all nodes get their time again.
func (w *waiting) check(now time.Time) {
	if now.Sub(w.checked) > 3*checkEvery {
		w.silence = silence{}
	}
	w.checked = now
	l := w.serving.Load()
	switch {
	case l == nil:
		w.leading = time.Time{}
	case w.leading.IsZero() || w.term != l.term:
		w.term, w.leading = l.term, now
	}
	w.checkLeader(l, now)
	for _, incarnation := range w.machine.WaitingIncarnations() {
		switch {
		case incarnation.Node == w.origin.Node:
			if incarnation.Epoch < w.origin.Epoch {
				w.clients.Waiters.DropPreviousIncarnations()
			}
		case l != nil && w.silent(incarnation.Node, l.term, now):
			w.drop(incarnation, w.absentAfter)
		case l != nil && w.dead(incarnation.Node, l.term, now):
			w.drop(incarnation, deadAfter)
		}
	}
}

func (w *waiting) drop(incarnation protocol.Incarnation, after time.Duration) {
	drop := &Batch{Body: protocol.AppendDrop(nil, incarnation), Count: 1, Write: true}
	if err := w.execute(drop); err == nil {
		w.event(WaitersDropped{Node: members.Name(incarnation.Node), After: after})
	}
}

// silent reports whether this leader has not heard of a node for AbsentAfter.
func (w *waiting) silent(node string, term uint64, now time.Time) bool {
	return w.unheard(node, term, now, w.absentAfter)
}

// dead reports whether a node's process is gone: the node was silent for a moment, and its port refuses a connection. A
// partitioned or frozen node refuses nothing.
func (w *waiting) dead(node string, term uint64, now time.Time) bool {
	if !w.unheard(node, term, now, deadAfter) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	conn, err := w.dial(ctx, node)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (w *waiting) unheard(node string, term uint64, now time.Time, long time.Duration) bool {
	return !w.heard(node, term, now.Add(-long)) && now.Sub(w.leading) >= long
}

// checkLeader sends this node's clients, after a long time without a leader, the error that their outcome is unknown:
// the majority may have dropped or served them.
func (w *waiting) checkLeader(l *leaderTerm, now time.Time) {
	if _, leader := w.leader(); l != nil || leader != "" {
		w.leadless = time.Time{}
		return
	}
	if w.led.Swap(false) || w.leadless.IsZero() {
		w.leadless = now
	}
	if now.Sub(w.leadless) >= w.absentAfter {
		w.clients.Waiters.LeaveAll(protocol.ErrUncertain.Value())
	}
}
