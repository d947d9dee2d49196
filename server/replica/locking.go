package replica

import (
	"errors"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/sessions"
)

// newRenewer makes the renewer of the sessions that live with connections of this node.
func newRenewer(r *Replica) *sessions.Renewer {
	return sessions.New(sessions.Cluster{
		Propose: func(closed []int64, renew bool) error {
			b := Batch{Write: true}
			if len(closed) > 0 {
				b.Body, b.Count = protocol.AppendGone(b.Body, closed...), b.Count+1
			}
			if renew {
				b.Body, b.Count = protocol.AppendAlive(b.Body), b.Count+1
			}
			return r.executeAll(&b)
		},
		Applied:          func(number uint64) bool { return r.machine.Applied(r.origin, number) },
		SubscribeCommits: func(yes bool) { r.commitInterest.set(&r.commitInterest.locking, yes) },
	})
}

// executeAll executes a batch. A request that was answered with an error is an error, too.
func (r *Replica) executeAll(b *Batch) error {
	if err := r.Execute(b); err != nil {
		return err
	}
	for i := range b.Replies {
		if b.Replies[i].IsError() {
			return errors.New(b.Replies[i].Str)
		}
	}
	return nil
}

// Sessions is the renewer of this node's sessions.
func (r *Replica) Sessions() *sessions.Renewer { return r.renewer }

// LockClasses counts what happened to locks, by class, since the start of this node.
func (r *Replica) LockClasses() []fsm.LockClass { return r.machine.LockClasses() }

// StockWaiters are the clients that poll for a stock lock, as far as this node remembers them.
func (r *Replica) StockWaiters(db int, key string) []fsm.StockWaiter {
	return r.machine.StockWaiters(db, key)
}

// LockStats counts locks, and what became of them since the start of this node.
func (r *Replica) LockStats() fsm.LockStats { return r.machine.LockStats() }

// stateEvents takes what an entry did to those whom it concerns.
func (r *Replica) stateEvents(events []event.Event) {
	r.waiting.events(events)
	r.renewer.Events(events)
	for i := range events {
		if e := &events[i]; e.Kind == event.LockSlow {
			r.event(LockSlow{DB: e.DB, Key: e.Key, LockNews: *e.Lock})
		}
	}
	r.config.OnStateEvents(events)
}

// resync hands the renewer and the registry of waiters a state that a snapshot brought.
func (r *Replica) resync() {
	r.renewer.Restored(r.machine.KeptSessions)
	r.waiting.registry.Restored()
}

// Compile compiles a source of a script, for this node to run. The error's text is the reply's.
func (r *Replica) Compile(source string) error { return r.machine.Compile(source) }

// Compiled reports whether Compile takes no time to speak of.
func (r *Replica) Compiled(source string) bool { return r.machine.Compiled(source) }
