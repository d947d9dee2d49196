// Package locks is the lock table: who holds which lock, who waits in line, which sessions there are, and
// which fences were given out. The table is part of the replicated state.
//
//	Table ─┬─ database ─┬─ locks: by hash, key      agenda: those with a queue, the others: by what is due first
//	       │            └─ lock ─┬─ hold: the only one, or   extension ─┬─ holdSet: by fence, by owner, by end
//	       │                     └─ extension: what goes beyond         ├─ ranks of the queue: awake │ asleep │ absent
//	       │                                                            └─ end of the delay, permits held, pending grant
//	       ├─ queues: entries by lock and rank ── waiters by owner, by end of the wait, by name, by session
//	       ├─ sessions: by id, by end, by incarnation of a node, by connection ── their holds
//	       └─ fences, orders, ids given out
//
//	 a request ──▶ granted? ──no──▶ in line ──time──▶ absent (the place is kept) ──time──▶ gone
//	                  │ yes            │ its turn        └─ asks again: in line
//	                  ▼                ▼
//	                held ◀─────────────┘
//	                  ├─ released ──────────▶ free, and granted to the first in line
//	                  └─ lost ──▶ delayed ──▶ free, and granted to the first in line
//
// It promises:
//   - An exclusive hold is the only one. Other holds of a lock are all shared, or all of permits, and the permits held
//     are at most the limit of the last granted request.
//   - Of two requests in a queue the later one is not granted first, unless the earlier one has left, or is absent, or
//     both are shared.
//   - Each hold gets a larger fence than all holds before. No fence and no session id is given out twice.
//   - A lease, a session, a wait, a grace and a delay end when their last instant has passed, and no earlier. Events of
//     a lock run in the order of time: a hold that ends before a wait is granted to the waiter.
//   - A request for many locks gets all or none, and takes no lock while it waits.
//   - A repeated request yields the same hold, or the same place in the queue.
//   - A lock without holds, waiters and delay leaves nothing behind.
//   - A step takes O(log n) for each change, and [MaxHolders] and [MaxPerSession] bound its changes. A copy of the
//     table and a flush of a database take constant time. Other due events run within a budget ([Table.Begin]); the
//     rest runs later ([Table.Sweep]). An event that has not run has not happened: ends may be late, never early. A
//     call that names a key runs the key's due events first.
//   - Tables that saw the same calls are equal, to the byte of [Table.Save].
//
// The package knows no commands, replies, connections or clock. Its owner passes the time, and reads what happened as
// [Event].
//
// Words: an *owner* holds a lock or waits for it, and is named by a text of the client; a *hold* is an owner's part in
// a lock; a *waiter* is a request in a queue. A waiter is *awake* at the lock that blocked it last, and *asleep* in the
// queues of its other locks. Its *place* in the queue is kept while it is *absent*. A lock is *settled* when nothing is
// due at it; a grant is *pending* while a waiter could be granted and the budget is spent. A *step* runs in one piece;
// a *change* is the end of a hold or of a wait, or a grant.
//
// Start reading at request.go and event.go, then acquire.go and grant.go. The parts:
//
//	request.go   requests, their bounds and errors; event.go what happens; info.go what is shown
//	budget.go    what bounds a step, and the budget
//	lock.go      a lock; hold.go its holds; waiter.go a request in a queue
//	database.go  the locks of a database by key and by timer; flushed databases
//	queues.go    the queues, and who is next in line; sessions.go the sessions, their holds and ends
//	store.go     all data together, its changes and its copies
//	due.go       due events of a lock, of a session, of all; the end of each call
//	grant.go     compatible requests, and grants; loss.go holds that end against their owner's will
//	table.go     a table, and calls for restores; acquire.go, release.go, session.go, leave.go to leave a queue
//	read.go      calls that change nothing; list.go pages
//	snapshot.go  snapshots: the method passFields of each record passes its fields; verify.go proves a table
//
// DESIGN.md has the reasons, and the alternatives that were refused.
package locks
