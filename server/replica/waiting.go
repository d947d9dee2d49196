package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/parking"
)

// waiting looks after the clients that wait for keys: this node's, and while this node leads also those of
// nodes that are silent. While no client waits it sleeps.
type waiting struct {
	r        *Replica
	registry *parking.Registry
	wake     chan struct{}
	// awake: run looks every second.
	awake atomic.Bool
	// led: a leader was seen since the last look.
	led atomic.Bool
	silence
}

// silence is since when something is so, as far as run has seen. The zero time: it is not so.
type silence struct {
	term     uint64    // the leadership of this node
	leading  time.Time // this node leads in that term
	leadless time.Time // no node leads, as far as this node knows
	looked   time.Time // run looked last
}

// lookEvery is the time between two looks at who is silent.
const lookEvery = time.Second

const (
	// deadAfter is how long a node is silent before this leader finds out whether its process is gone, and
	// dialWithin how long that may take.
	deadAfter  = time.Second
	dialWithin = 200 * time.Millisecond
)

func newWaiting(r *Replica) *waiting {
	w := &waiting{r: r, wake: make(chan struct{}, 1)}
	w.registry = parking.New(parking.Cluster{
		Propose: func(body []byte, count int) error {
			b := Batch{Body: body, Count: count, Write: true}
			if err := r.executeAll(&b); err != nil {
				return err
			}
			if !r.AwaitApplied(context.Background(), b.Number) {
				return errLags
			}
			return nil
		},
		Waits:   func(ticket uint64) bool { return r.machine.Waits(r.origin, ticket) },
		Applied: func(number uint64) bool { return r.machine.Applied(r.origin, number) },
		SubscribeCommits: func(yes bool) {
			r.SubscribeCommits(yes)
			if yes {
				notify(w.wake)
			}
		},
	})
	return w
}

// Parking is the registry of this node's clients that wait.
func (r *Replica) Parking() *parking.Registry { return r.waiting.registry }

func (w *waiting) propose(body []byte, count int) error {
	return w.r.Execute(&Batch{Body: body, Count: count, Write: true})
}

// errLags: this node's copy of the state did not come to a request in time.
var errLags = errors.New("this node lags")

// events tells clients of this node that their wait is over.
func (w *waiting) events(events []event.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == event.Woken {
			w.registry.Woken(e.Seq, *e.Reply)
		}
	}
}

// reached is called when the state has changed.
func (w *waiting) reached() {
	if !w.awake.Load() && w.r.machine.Waiting() {
		notify(w.wake)
	}
}

func (w *waiting) run(ctx context.Context) error {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.look(time.Now())
		// One call: a client that leaves and one that comes between two would wake nothing.
		some := w.registry.UnsubscribeIdle() || w.r.machine.Waiting()
		w.awake.Store(some)
		if some {
			timer.Reset(lookEvery)
		} else if w.r.machine.Waiting() {
			notify(w.wake) // a client came before awake was set
		}
	}
}

// look judges who is silent. After a pause, as when this process was frozen, all get their time again.
func (w *waiting) look(now time.Time) {
	if now.Sub(w.looked) > 3*lookEvery {
		w.silence = silence{}
	}
	w.looked = now
	l := w.r.serving.Load()
	switch {
	case l == nil:
		w.leading = time.Time{}
	case w.leading.IsZero() || w.term != l.term:
		w.term, w.leading = l.term, now
	}
	w.lookForLeader(l, now)
	for _, incarnation := range w.r.machine.WaitingIncarnations() {
		switch {
		case incarnation.Node == w.r.origin.Node:
			if incarnation.Epoch < w.r.origin.Epoch {
				w.registry.DropPreviousIncarnations()
			}
		case l != nil && w.silent(incarnation.Node, l.term, now):
			w.drop(incarnation, w.r.config.AbsentAfter)
		case l != nil && w.dead(incarnation.Node, l.term, now):
			w.drop(incarnation, deadAfter)
		}
	}
}

func (w *waiting) drop(incarnation protocol.Origin, after time.Duration) {
	if err := w.propose(protocol.AppendDrop(nil, incarnation), 1); err == nil {
		w.r.event(WaitersDropped{Node: members.Name(incarnation.Node), After: after})
	}
}

// silent reports whether this leader has not heard of a node for long.
func (w *waiting) silent(node string, term uint64, now time.Time) bool {
	return w.unheard(node, term, now, w.r.config.AbsentAfter)
}

// dead reports whether a node's process is gone: nothing was heard of the node for a moment, and its port refuses a
// connection. A node that is cut off or frozen refuses nothing.
func (w *waiting) dead(node string, term uint64, now time.Time) bool {
	if !w.unheard(node, term, now, deadAfter) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	conn, err := w.r.config.Peers.Forward.DialContext(ctx, node)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (w *waiting) unheard(node string, term uint64, now time.Time, long time.Duration) bool {
	_, _, heard := w.r.node.Heard(node, term, now.Add(-long))
	return !heard && now.Sub(w.leading) >= long
}

// lookForLeader tells this node's clients, after a long time without a leader, that it is not known whether
// they were served: the majority may have dropped them, or may be serving them.
func (w *waiting) lookForLeader(l *leaderTerm, now time.Time) {
	if _, leader := w.r.node.Leader(); l != nil || leader != "" {
		w.leadless = time.Time{}
		return
	}
	if w.led.Swap(false) || w.leadless.IsZero() {
		w.leadless = now
	}
	if now.Sub(w.leadless) >= w.r.config.AbsentAfter {
		w.registry.LeaveAll(protocol.ErrUncertain.Value())
	}
}
