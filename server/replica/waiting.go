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

// waiting looks after the clients that wait for keys: this node's, and while this node leads also those of
// nodes that are silent. While no client waits it sleeps.
type waiting struct {
	waitingConfig
	clients *sessions.Clients
	wake    chan struct{}
	// awake: run looks every second.
	awake atomic.Bool
	// led: a leader was seen since the last look.
	led atomic.Bool
	silence
}

// waitingConfig is what waiting needs of the node.
type waitingConfig struct {
	origin      protocol.Incarnation
	machine     fsm.Machine
	serving     *atomic.Pointer[leaderTerm]
	absentAfter time.Duration
	execute     func(*Batch) error
	leader      func() (term uint64, leader string)
	// heard reports whether a node was heard of since an instant, by this leader of a term.
	heard func(node string, term uint64, since time.Time) bool
	dial  func(ctx context.Context, node string) (net.Conn, error)
	event func(Event)
}

// silence has the times since when each condition has held, as far as run has seen; zero: it does not hold.
type silence struct {
	term     uint64    // the leadership of this node
	leading  time.Time // this node leads in that term
	leadless time.Time // no node leads, as far as this node knows
	checked  time.Time // run looked last
}

// checkEvery is the time between two checks of who is silent.
const checkEvery = time.Second

const (
	// deadAfter is how long a node is silent before this leader finds out whether its process is gone, and
	// dialWithin how long that may take.
	deadAfter  = time.Second
	dialWithin = 200 * time.Millisecond
)

// newWaiting makes the clients, too, which work on cluster.
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

// errLags: this node's copy of the state did not come to a request in time.
var errLags = errors.New("this node lags")

// events tells clients of this node that their wait is over.
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
		// One call: a client that leaves and one that comes between two would wake nothing.
		some := w.clients.Waiters.UnsubscribeIdle() || w.machine.Waiting()
		w.awake.Store(some)
		if some {
			timer.Reset(checkEvery)
		} else if w.machine.Waiting() {
			notify(w.wake) // a client came before awake was set
		}
	}
}

// check judges who is silent. After a pause, as when this process was frozen, all get their time again.
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

// silent reports whether this leader has not heard of a node for long.
func (w *waiting) silent(node string, term uint64, now time.Time) bool {
	return w.unheard(node, term, now, w.absentAfter)
}

// dead reports whether a node's process is gone: nothing was heard of the node for a moment, and its port refuses a
// connection. A node that is cut off or frozen refuses nothing.
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

// checkLeader tells this node's clients, after a long time without a leader, that it is not known whether
// they were served: the majority may have dropped them, or may be serving them.
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
