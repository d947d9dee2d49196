// Package target is what is measured: a name, addresses, and how to take and give
// back a lock there.
//
// It promises that every kind of client does the same work: the lock is taken by SET
// NX PX with a token and given back by the compare-and-delete script that lock
// libraries send, by hash. A client never sends a command a second time by itself:
// a retry would hide an error and spoil a latency.
//
// Start reading at [Client].
package target
