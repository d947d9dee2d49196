// Package locks is the lock table. It records the holders of each lock, the requests that wait for it, the sessions of
// clients, and the last fence that was issued. The table is part of the replicated state.
//
//	Table ─┬─ database ─┬─ locks: by hash and key      agenda: contended locks, then other locks with a timer
//	       │            └─ lock ─┬─ its only hold, or extension ─┬─ holdSet: by fence, by owner, by end
//	       │                     └─ extension, if it has more    ├─ ranks of the queue: awake │ asleep │ absent
//	       │                                                     └─ permits held, delay, pending grant
//	       ├─ queues: entries by lock and rank ── waiters by owner, by end of the wait, by name, by session
//	       ├─ sessions: by id, by end, by incarnation, by connection ── their holds
//	       └─ the last fence, order and ids that were issued
//
//	 a request ──▶ granted? ──no──▶ in a queue ──timeout──▶ absent (keeps its place) ──timeout──▶ removed
//	                  │ yes            │ its turn              └─ asks again: in the queue
//	                  ▼                ▼
//	                held ◀─────────────┘
//	                  ├─ released ──────────▶ free, and granted to the next in line
//	                  └─ lost ──▶ delayed ──▶ free, and granted to the next in line
//
// It promises:
//   - An exclusive hold is the only hold of its lock. Otherwise all holds of a lock are shared, or all hold permits.
//     The permits held do not exceed the limit of the request that was granted last.
//   - Of two requests in a queue the earlier one is granted first, unless it is absent, or both are shared.
//   - Each grant gets a larger fence than all grants before it. No fence and no session id is issued twice.
//   - A lease, a session, a wait, a grace and a delay never end before their deadline has passed. The events of one
//     lock run in the order of time: if a hold ends before a wait ends, the waiter is granted the lock.
//   - A request for several locks is granted all of them or none, and takes no lock while it waits.
//   - A repeated request yields the same hold, or keeps its place in the queue.
//   - A lock without holds, waiters and delay is removed.
//   - A change takes O(log n), and [MaxHolders] and [MaxPerSession] bound the changes of a step. A copy of the table
//     and a flush of a database take constant time. All other due events run within a budget ([Table.Begin]);
//     [Table.Sweep] runs the rest later. An event that has not run has not happened, so an end may be late, but never
//     early. A call that names a key first runs the due events of that key.
//   - Two tables that received the same calls are equal: [Table.Save] writes the same bytes for both.
//
// The package knows no commands, replies, connections or clock. The state machine (package fsm) passes the time to
// [Table.Begin], and reads the changes from the events of [Table.TakeEvents].
//
// Words:
//   - An owner holds a lock or waits for it. The client chooses the text that names the owner.
//   - A hold is the part of one owner in a lock. Its lease or its session bounds it in time.
//   - A waiter is a request in one queue or in several. Its place in a queue is an entry of that queue.
//   - A waiter is awake in the queue of the lock that blocked it last, and asleep in its other queues. It is absent
//     while its wait has ended by time and a grace still keeps its places.
//   - The order of a waiter is a number that gives its place in each queue. A new waiter gets a larger order than all
//     waiters before it. A request that repeats a waiter keeps the order.
//   - A native lock is a lock of the table. A stock lock is a key that a client takes as a lock with commands of Redis;
//     the table has no record of it.
//   - A lock is contended while its queue has an entry.
//   - A flush replaces a database, with its locks, by an empty one. The new database is live. The old one is flushed,
//     and stays until its holds are emitted as lost and its queues have moved. A lock in a live database is live, and
//     a lock in a flushed one is flushed.
//   - A deadline is the last instant of a lease, session, wait, grace or delay. A timer is a deadline that the table
//     stores for a lock or a session. Its event is due when the deadline has passed.
//   - A hold or a session has ended when its deadline has passed. It stays in the table until its event runs.
//   - A lock is settled when none of its events is due.
//   - A grant is pending while a waiter may be granted a lock, and an earlier event or a spent budget prevents that.
//   - A step runs without interruption. A change is the end of a hold, the end of a wait, or a grant.
//   - A fence is the fencing token of a grant. An incarnation is one run of a node; the origin of a hold, waiter or
//     session is the incarnation of the node to which its client is connected.
//
// Start reading at request.go and event.go, then acquire.go and grant.go. The parts:
//
//	request.go    requests, their bounds and errors
//	event.go      events, which report changes to the state machine
//	info.go       descriptions of locks, holds, waiters and sessions
//	budget.go     the bounds of a step, and the budget
//	lock.go       a lock
//	hold.go       the holds of a lock
//	waiter.go     a request that waits
//	database.go   the locks of a database, by key and by timer; flushed databases
//	queues.go     the queues, and the waiter that is next in line
//	sessions.go   the sessions, their holds and their ends
//	store.go      all data of a table, its changes and its copies
//	due.go        due events, and the end of each call
//	grant.go      compatibility of requests with holds, and grants
//	loss.go       holds that end against the will of their owners
//	table.go      a table, and the calls of a restore
//	acquire.go    requests for locks
//	release.go    renewals and releases
//	session.go    calls about sessions
//	leave.go      calls that remove waiters
//	read.go       calls that change nothing
//	list.go       pages of locks and sessions
//	snapshot.go   snapshots: each record has a method, passFields, that writes or reads its fields
//	verify.go     a check of a whole table, for tests
//
// DESIGN.md has the reasons, and the alternatives that were refused.
package locks
