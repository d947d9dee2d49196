// Package parking is the registry of this node's clients that wait for keys: which client gets the reply of a command
// that was answered with "parked", and which waiters of the cluster have no client any more.
//
// It promises:
//   - a client gets one reply, the first that is known, and none after it has left;
//   - a waiter whose client has left is taken out of the cluster's queues, sooner or later, as long as this
//     node lives: also if there is no leader for a while;
//   - a lock that was granted to a client that has left is given back, in the same way;
//   - a client costs an entry in a map, no goroutine and no timer;
//   - a client whose reply was lost with the entries that a snapshot replaces gets an error.
//
// The package does not know what a client waits for, nor what a connection is.
//
// # The way of a wait
//
//	Enter: a ticket ─► the command goes to the cluster, under the ticket
//	                     ├─► it is served at once:  Forget
//	                     ├─► it is parked:          Parked ─► Woken, from this node's log
//	                     └─► it is not known:       Leave
//	the client goes:       Leave ─► Run has the cluster forget the ticket
//	                                  └─► Woken before that: the frontend gives a lock back
//
// Woken may come before Parked, as the reply of a forwarded command comes from the leader, and Woken from
// this node's own log.
//
// Goroutines: Run is the only one. Under Registry.mu nothing is called but Cluster.SubscribeCommits, and nothing is
// waited for. So Woken may be called by the state machine.
package parking
