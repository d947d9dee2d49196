// Package locks is the lock table: who holds which lock, who waits in line, which sessions there are, and
// which fences were given out. The table is part of the replicated state.
//
//	Table ─┬─ locks: by database, hash, key          timers: by the first instant at which something is due
//	       │   lock ─┬─ hold: the only one, or   extension ─┬─ holds: by owner, by fence, by end of lease
//	       │         └─ extension: what goes beyond         ├─ queue: awake │ asleep │ absent, each in order
//	       │                                                └─ delay, permits held, losses not worked off
//	       ├─ waiters: by name, by owner, by end of the wait
//	       ├─ sessions: by id, by end, by incarnation of a node, by connection ── their holds, their waiters
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
//   - Nothing stands beside an exclusive hold; shared holds stand together; permits held are at most the
//     limit that the last granted request named.
//   - Of two requests in a queue the later is granted no earlier, unless the earlier one left, is absent, or
//     would not mind: both are shared.
//   - Each hold gets a larger fence than all holds before. No fence and no session's id is given out twice.
//   - A lease, a session, a wait, a grace and a delay end when their last instant has passed, and no earlier.
//     What is due at a lock happens in the order of time: a hold that ends before a wait goes to who waits.
//   - A request for many locks gets all or none, and takes no lock while it waits.
//   - Asking again yields the same hold, or the same place in line.
//   - A lock without holds, waiters and delay leaves nothing behind.
//   - A step takes O(log n), to copy the table constant time. What becomes possible or due for many at once is
//     done in as many steps as the caller allows ([Table.Begin]), and the rest later ([Table.Sweep]). What is
//     lost counts as lost before.
//   - Tables that saw the same calls are alike, to the byte of [Table.Save].
//
// The package does not know commands, replies, connections, or what the time is: the owner says. It tells the
// owner what happened by [Effect].
//
// Words: an *owner* is who holds or waits, by a string of the client's; a *hold* is an owner's part in a lock;
// a *waiter* is a request in line. A waiter is *awake* at the lock that blocked it last, and *asleep* in the
// queues of its other locks. A *place* is kept while the waiter is *absent*. A lock is *settled* when nothing
// is due at it, and *unfinished* while a waiter could be granted and no steps were left.
//
// Start reading at request.go and effect.go, then acquire.go and queue.go. The parts:
//
//	request.go  what is asked; effect.go what happens; info.go what is shown
//	records.go  locks, holds, waiters and sessions as the trees keep them: their orders, and what they count for
//	table.go    the trees, copies, the clock, steps; find.go finds in the trees
//	lock.go     changes of a lock, hold.go of its holds, waiter.go of its queue
//	loss.go     holds that end against their owner's will: one, a lock's, a database's; late.go tells of a near miss
//	due.go      what happens by time, what is unfinished, and the end of each call
//	slices.go   what ends for many at once, and is worked off in slices
//	queue.go    which requests are compatible, which is next, grants
//	acquire.go  a request; release.go the ways to give back
//	session.go  sessions, and the connections that they live with
//	dropped.go  waiters that leave; names.go finds them by name
//	read.go     what changes nothing
//	saved.go    the table in a snapshot; load.go reads it; backup.go is for backups; verify.go proves a table
//
// DESIGN.md says why it is so and what was refused.
package locks
