package replica

import (
	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/sessions"
)

// Clients are this node's clients that wait or have sessions.
func (r *Replica) Clients() *sessions.Clients { return r.waiting.clients }

// LockClasses counts what happened to locks, by class, since the start of this node.
func (r *Replica) LockClasses() []fsm.LockClass { return r.machine.LockClasses() }

// StockWaiters are the clients that poll for a stock lock, as far as this node remembers them.
func (r *Replica) StockWaiters(db int, key string) []fsm.StockWaiter {
	return r.machine.StockWaiters(db, key)
}

// LockStats counts locks, and what became of them since the start of this node.
func (r *Replica) LockStats() fsm.LockStats { return r.machine.LockStats() }

// Compile compiles a source of a script, for this node to run. The error's text is the reply's.
func (r *Replica) Compile(source string) error { return r.machine.Compile(source) }

// Compiled reports whether Compile takes no time to speak of.
func (r *Replica) Compiled(source string) bool { return r.machine.Compiled(source) }

// ScriptWork estimates what a script will do, if it did much when it ran last: see [fsm.Machine.ScriptWork].
func (r *Replica) ScriptWork(word []byte, words [][]byte) int64 {
	return r.machine.ScriptWork(word, words)
}

// SubscribeCommits sets whether clients of this node are parked, until an entry wakes them.
func (r *Replica) SubscribeCommits(parked bool) {
	r.commitInterest.set(&r.commitInterest.parked, parked)
}

// Incarnation is the newest of a node that has a batch in the state; 0: none.
func (r *Replica) Incarnation(id string) uint64 { return r.machine.Incarnation(id) }

// Listen sets the events that [Config.OnStateEvents] gets from the next entry on. While there are such events, this
// node subscribes to the leader's commit notifications.
func (r *Replica) Listen(i event.Interest) {
	r.machine.Listen(i | r.config.auditing())
	r.commitInterest.set(&r.commitInterest.events, i != 0)
}
