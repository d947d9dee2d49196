// Package fsm is the replicated state machine, which runs the commands. Its state has the keys with their deadlines,
// the locks, the waiting requests, the script cache, and the sessions of nodes.
//
// It promises:
//   - Deterministic: machines that apply the same entries have the same state, to the byte of their snapshots, and give
//     the same replies. No clock, no goroutine, no I/O, no chance, no map order, no floating point that could differ
//     between processors; tidy_test.go checks the code for that. The caches of a node, and the replies that it omits
//     since no client waits for them, affect no other reply and no snapshot.
//   - At most once: no batch is applied twice. The session of its node remembers the applied batches.
//   - Time is in the log: a key expires for all commands at once, when the cluster time of an entry exceeds its
//     deadline.
//   - No request that decodes makes the machine panic, or run without a limit. A script or a transaction that exceeds
//     its budget changes nothing.
//   - An entry takes a fraction of a second at most. A request that does not fit into the budget is not applied, and
//     the sink learns that. Batches that cost little always fit.
//   - A snapshot is taken in constant time, and is immutable. If a snapshot is damaged, Restore keeps the former state.
//
// The machine does not depend on the leader, the wall clock or the connections of clients, and checks permissions only
// for effects beyond the words of a command (judge.go). The entries have the memory limit.
//
// Package server/replica calls [Machine.Apply] with each committed entry in order, [Machine.Read] for linearizable
// reads, and [Machine.Snapshot] and [Machine.Restore] for raft. Commands have the names of protocol's table. The node
// that took a command has checked its arity, and the machine checks it again.
//
// Start reading at fsm.go, then machine.go, state.go, run.go, command/call.go and str/set.go. The parts:
//
//	fsm.go         the interface of the machine, entries, reads
//	state.go       the replicated state; session.go
//	machine.go     the machine, and the call, which runs commands; run.go
//	command/       the functions that commands on keys share: look up, charge, change, store, notify
//	str/ bit/ hash/ list/ set/ zset/ keys/  the commands on values of a type and on keys, each with a table Ops
//	ops.go         the functions of all commands, with the versions that have them; binding.go
//	keys.go        commands that end locks, FLUSHALL among them; the guard of locks; the sweep of expired keys
//	exec.go        transactions: EXEC and WATCH
//	budget.go      the limits of the work of a request, a batch and an entry
//	memory.go      the memory of the state, and the quotas of users
//	events.go      the events of an entry
//	undo.go        the roll-back of scripts and transactions
//	eval.go        scripts; scriptcache.go has their sources
//	park.go        requests that wait for keys: wake.go serves them; noop.go recognizes requests without an effect
//	lock_….go      native locks: the commands and the events; fence.go
//	stock_….go     stock locks: the marks of their keys, losses, and replies
//	lock_call.go   passes the events of native and stock locks to the observers: the replicated history (lock_history.go,
//	               stock_loss.go), and the counts by class, the polling clients and the audit of this node
//	               (lock_watch.go, lock_polls.go, lock_audit.go)
//	prefetch.go    prefetches memory for later requests
//	snapshot.go    writes the stream of a snapshot; snapshot_codec.go; restore.go reads it
//	renew.go       turns a state into the first one of another cluster; survey.go describes a state
//	keyspace/      items, their order, their deadlines
//	collection/    hashes, sets, lists and sorted sets
//	locks/         the table of native locks: holds and waiters
//	waits/         the table of the requests that wait for keys
//	rights/        the rights of users
//	lua/           the script engine
//
// DESIGN.md has the reasons and the refused alternatives.
package fsm
