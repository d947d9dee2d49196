// Package sessions keeps the cluster's state and this node's clients in step: clients that wait for a key, and
// connections that have sessions of locks. [Waiters] delivers replies that come later, [Renewer] renews sessions and
// delivers the notices of lost holds, and one loop removes clients that have left from the state.
//
// It promises, of clients that wait:
//   - a client gets at most one reply, the first, and none after it has left;
//   - a client costs an entry in a map, no goroutine and no timer;
//   - a client whose reply was lost, because a snapshot replaced the entries, gets an error.
//
// Of sessions:
//   - a session lives for as long as its connection is open and this node reaches the majority: the [Renewer] renews
//     all of this node's sessions by one request, three times in the shortest lease;
//   - a client never relies on an expired session: if no renewal was acknowledged for seven eighths of the lease, the
//     connection is closed. The session is not ended then, so that the client may attach it to a connection of another
//     node;
//   - a client gets the notice of a lost hold as soon as the leader's clients get the replies of the same entry: while
//     connections may have sessions, this node subscribes to commit notifications;
//   - the connection of a client that vanished without closing it is closed soon after the shortest lease of its
//     sessions;
//   - if signs of life are demanded, a client that is silent for the shortest lease of its sessions loses its
//     connection, and each session at the earliest its own lease after the client's last message;
//   - a node that shuts down in order ends no session;
//   - a session costs an entry in a tree, no goroutine and no timer; a demand costs one check in a lease. Without
//     sessions nothing is proposed.
//
// Of clients that have left, eventually, for as long as this node runs, also if there is no leader for a while:
//   - their waiters are removed from the cluster's queues;
//   - a lock that was granted too late is returned;
//   - the sessions of a closed connection end, also a session whose request had an unknown outcome;
//   - departures are batched, and no renewal waits for them.
//
// The package does not know which key a client waits for, what a session holds, nor what a connection is.
//
// # The life of a wait
//
//	Enter: a ticket ─► the command is proposed with the ticket
//	                     ├─► it is served at once:      Forget
//	                     ├─► it is parked:              Parked ─► Woken, from this node's log
//	                     └─► its outcome is unknown:    Leave
//	the client leaves:     Leave ─► the cluster removes the waiter
//	                                  └─► Woken before that: the frontend returns a granted lock
//
// Woken may be called before Parked, as the reply of a forwarded command comes from the leader, and Woken from this
// node's own log.
//
// # The life of a session
//
//	Enter: a connection may get sessions ─► the command is proposed
//	                     ├─► its reply:               Expect, until this node's log has the command
//	                     └─► this node's log:         Events; if the connection has closed, its sessions end
//	Run renews the sessions, or closes connections
//	Demand: the client is checked, and its connection closed if it was silent
//	the connection closes: Leave ─► the cluster ends the sessions of the connection
//
// Goroutines: Run has three. One proposes departures, one renews, one closes connections during a renewal.
//
// Locks: departures.mu may be taken while Waiters.mu or Renewer.mu is held. Under these two, messages are posted to
// clients, and of the cluster's functions only those that subscribe are called. No lock is held over a wait, so that
// the state machine may call Woken and Events.
package sessions
