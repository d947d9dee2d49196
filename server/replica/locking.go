package replica

import (
	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/sessions"
)

// Clients returns the clients of this node that wait or have sessions.
func (r *Replica) Clients() *sessions.Clients { return r.waiting.clients }

// LockClasses returns the counts of lock events by class, since the start of this node.
func (r *Replica) LockClasses() []fsm.LockClass { return r.machine.LockClasses() }

// StockWaiters returns the clients that poll for a stock lock, as far as this node has recorded them.
func (r *Replica) StockWaiters(db int, key string) []fsm.StockWaiter {
	return r.machine.StockWaiters(db, key)
}

// LockStats returns the numbers of locks, and the counts of their events since the start of this node.
func (r *Replica) LockStats() fsm.LockStats { return r.machine.LockStats() }

// Compile compiles the source of a script on this node. The client's reply has the text of the error.
func (r *Replica) Compile(source string) error { return r.machine.Compile(source) }

// Compiled reports whether Compile takes almost no time.
func (r *Replica) Compiled(source string) bool { return r.machine.Compiled(source) }

// ScriptWork estimates the work of a script by its last run: see [fsm.Machine.ScriptWork].
func (r *Replica) ScriptWork(word []byte, words [][]byte) int64 {
	return r.machine.ScriptWork(word, words)
}

// SubscribeCommits sets whether clients of this node are parked.
func (r *Replica) SubscribeCommits(parked bool) {
	r.commitInterest.set(&r.commitInterest.parked, parked)
}

// Incarnation returns the newest incarnation of a node that has a batch in the state, or 0.
func (r *Replica) Incarnation(id string) uint64 { return r.machine.Incarnation(id) }

// Listen selects the events that [Config.OnStateEvents] gets from the next entry on. If there are any, this node
// subscribes to the leader's commit notifications.
func (r *Replica) Listen(i event.Interest) {
	r.machine.Listen(i | r.config.auditing())
	r.commitInterest.set(&r.commitInterest.events, i != 0)
}
