// Package waits keeps the requests that wait for keys: who waits, for what, in which order, and until
// when. Waits are part of the replicated state, so they outlive the node that leads.
//
// It promises:
//   - the waiters of a key and a kind of value stand in the order in which they came;
//   - to add, find or remove a waiter takes O(log n) for each of the waiter's keys, to copy all waiters
//     constant time;
//   - waiters that leave together (a node that died) leave in pieces of bounded work, and count as gone
//     at once;
//   - tables that saw the same calls are alike.
//
// The package does not know what a waiter waits for, nor when that has come: the owner calls Wake with
// every key that may serve a waiter, takes the keys by [Table.Ready], and tries the waiters.
//
// Words: a *waiter* is a request that waits; the node that took the request names the waiter by a
// *ticket*, which no other request of this incarnation of the node has. A key is *ready* when its waiters are to
// be tried.
//
// Start reading at table.go, then ready.go and dropped.go. saved.go is what a snapshot needs.
package waits
