// Package locks is the lock table: who holds which lock, who waits in line, which sessions there are, and
// which fences were given out. The table is part of the replicated state.
//
//	Table ─┬─ database ─┬─ locks: by hash, key      agenda: those with a queue, the others: by what is due first
//	       │            └─ lock ─┬─ hold: the only one, or   extension ─┬─ holdSet: by fence, by owner, by end
//	       │                     └─ extension: what goes beyond         ├─ ranks of the queue: awake │ asleep │ absent
//	       │                                                            └─ delay, permits held, a grant that is pending
//	       ├─ queues: places by lock, by owner, by end of the wait ── waiters by name, by session
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
//   - Each hold gets a larger fence than all holds before. No fence and no session's id is given out twice.
//   - A lease, a session, a wait, a grace and a delay end when their last instant has passed, and no earlier. Events at
//     a lock run in the order of time: a hold that ends before a wait is granted to the waiter.
//   - A request for many locks gets all or none, and takes no lock while it waits.
//   - A repeated request yields the same hold, or the same place in line.
//   - A lock without holds, waiters and delay leaves nothing behind.
//   - A step takes O(log n), and runs at most as many ends as [MaxHolders] and [MaxPerSession] allow. A copy of the table
//     and a flush of a database take constant time. If many events are due, the caller grants a budget ([Table.Begin]),
//     and the rest runs later ([Table.Sweep]). An event that has not run yet has not happened: ends may be late, never
//     early. A call that names a key runs the key's due events first.
//   - Tables that saw the same calls are alike, to the byte of [Table.Save].
//
// The package knows no commands, replies, connections or clock. Its owner passes the time, and reads what happened as
// [Event].
//
// Words: an *owner* holds a lock or waits for it, and is named by a text of the client's; a *hold* is an owner's part
// in a lock; a *waiter* is a request in line. A waiter is *awake* at the lock that blocked it last, and *asleep* in the
// queues of its other locks. A *place* is kept while the waiter is *absent*. A lock is *settled* when nothing is due at
// it; a grant is *pending* while a waiter could be granted and the budget is spent.
//
// Start reading at request.go and event.go, then acquire.go and grant.go. The parts:
//
//	request.go   what is asked; event.go what happens; info.go what is shown
//	lock.go      a lock; hold.go its holds; waiter.go a request in line
//	database.go  the locks of a database, what is due first there, and databases that were flushed
//	queues.go    the queues: who is next in line; sessions.go the sessions: what they hold, what ends next
//	store.go     all of that together, its changes and its copies; budget.go the steps that are left
//	due.go       what is due: at a lock, of a session, in all; the end of each call
//	grant.go     which requests are compatible, and grants
//	loss.go      holds that end against their owner's will: one, a lock's, a database's
//	table.go     the calls: acquire.go, release.go, leave.go to leave a queue, session.go
//	read.go      what changes nothing; list.go pages
//	saved.go     the table in a snapshot; load.go reads it; backup.go is for backups; verify.go proves a table
//
// DESIGN.md says why it is so and what was refused.
package locks
