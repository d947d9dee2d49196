// Package sessions looks after the clients of this node that the cluster knows beyond a command: those that wait for
// keys, and connections with sessions of locks. [Waiters] delivers a reply that comes later, [Renewer] renews sessions
// and sends the news of a loss, and one loop has the cluster forget who has left.
//
// It promises of clients that wait:
//   - a client gets one reply, the first that is known, and none after it has left;
//   - a client costs an entry in a map, no goroutine and no timer;
//   - a client whose reply was lost with the entries that a snapshot replaces gets an error.
//
// Of sessions:
//   - a session lives for as long as its connection is open and this node reaches the majority: the [Renewer]
//     renews all of this node's sessions by one request, three times in the shortest lease;
//   - a client does not believe in a session that others may take for ended: where no renewal was acknowledged
//     for seven eighths of the lease, the connection is closed. The session is not ended then, so that the
//     client may attach the session to a connection of another node;
//   - a client gets the news of a loss as soon as the clients of the leader get the replies of the same entry: while
//     there are clients, this node subscribes to commit notifications;
//   - the connection of a client that vanished without closing it ends soon after the shortest lease of its sessions;
//   - where signs of life are demanded, a client that sends nothing for the shortest lease of its sessions loses its
//     connection then, and each session no sooner than its lease after the last bytes;
//   - a node that ends in good order ends no session;
//   - a session costs an entry in a tree, no goroutine and no timer; a demand one look in a lease. Without sessions
//     nothing is proposed.
//
// Of clients that have left, sooner or later, as long as this node lives, also if there is no leader for a while:
//   - their waiters are taken out of the cluster's queues;
//   - a lock that was granted too late is given back;
//   - the sessions of a closed connection end, also if a session was opened by a request whose outcome was not known;
//   - what leaves at a time goes with one batch, and no renewal waits for that.
//
// The package does not know what a client waits for, what a session is for, nor what a connection is.
//
// # The way of a wait
//
//	Enter: a ticket ─► the command goes to the cluster, under the ticket
//	                     ├─► it is served at once:  Forget
//	                     ├─► it is parked:          Parked ─► Woken, from this node's log
//	                     └─► it is not known:       Leave
//	the client goes:       Leave ─► the cluster forgets the ticket
//	                                  └─► Woken before that: the frontend gives a lock back
//
// Woken may come before Parked, as the reply of a forwarded command comes from the leader, and Woken from
// this node's own log.
//
// # The way of a session
//
//	Enter: a connection may get sessions ─► the command goes to the cluster
//	                     ├─► the reply came:      Expect, until this node's log has the command
//	                     └─► this node's log:     Events; for a connection that is not there: its sessions end
//	Run has the sessions renewed, or cuts connections
//	Demand: the client is looked at in time, and its connection cut if it was silent
//	the connection closes:  Leave ─► the cluster ends the sessions of the connection
//
// Goroutines: Run has three. One proposes what leaves, one renews, one cuts connections while a renewal is under way.
//
// Locks: under Waiters.mu and under Renewer.mu departures.mu is taken, messages are posted to clients, and no function
// of the cluster is called but those that subscribe. Nothing is waited for. So Woken and Events may be called by the
// state machine.
package sessions
