// Package fsm is the replicated state machine: the meaning of commands. It holds the keys, their
// deadlines, cluster time, the script cache, and which batches were applied.
//
// It promises:
//   - Deterministic: machines that apply the same entries have the same state, to the byte of their
//     snapshots, and give the same replies. No clock, no goroutine, no I/O, no chance, no map order,
//     no floating point that could differ between processors; tidy_test.go checks the code for that.
//     What a node does of its own accord (compile a script, leave out replies
//     without a waiting client) shows in no reply and no snapshot.
//   - At most once: a batch is applied or skipped, by the node's session.
//   - Time belongs to the log: a key ends for every command at once, when cluster time, which entries
//     carry, has passed the key's deadline.
//   - No request that decodes makes the machine panic, or run without bound. A script or a transaction
//     over its budget leaves nothing behind.
//   - An entry costs a fraction of a second at most. A request that does not fit into the budget is
//     not applied, and the sink is told so. Batches that cost little always have room.
//   - A snapshot is taken in constant time and does not change. A damaged snapshot is refused, and the
//     state stays.
//
// The package does not know which node leads, what the time is, or what a connection is, and checks no
// permissions. Entries say how large the state may grow.
//
// Package server/replica feeds the machine: [Machine.Apply] with every committed entry in order, [Machine.Read] for
// linearizable reads, [Machine.Snapshot] and [Machine.Restore] for raft. Commands have the names of
// protocol's table. The node that took a command has checked its arity; the machine checks it again.
//
// Start reading at fsm.go, then machine.go, state.go, run.go, command/call.go and str/set.go. The parts:
//
//	fsm.go         the machine: lock, entries, reads
//	state.go       all that is replicated; session.go
//	machine.go     the machine, and a command on its way through the state: what each has; run.go runs the command
//	command/       what commands on keys work with: look up, charge, change, store, notify
//	str/ bit/ hash/ list/ set/ zset/ keys/  the commands on values of a type and on keys, each with a table Ops
//	ops.go         which function is which command (binding.go), and which commands an entry knows
//	keys.go        commands that end locks, FLUSHALL among them, and the guard of locks; keys whose time is over
//	exec.go        transactions, and what EXEC compares with what WATCH saw
//	budget.go      how much work a request, a batch and an entry may be
//	memory.go      the memory of the state and of users with quotas, and what is refused when it is full
//	events.go      what others than the client hear of
//	undo.go        the changes of a script or a transaction
//	eval.go        scripts, and where math.random begins; scriptcache.go their sources, compiled before their entry
//	park.go …      clients that wait for keys: wake.go serves them; noop.go what would change nothing
//	lock_….go      native locks: the commands, and what the lock table wants done; fence.go
//	stock_….go     marks of stock locks: which keys have one, and how they are shown
//	lock_call.go   what happens to a lock, native or stock, goes through LockEvent to each observer: lock_history.go and
//	               stock_loss.go how locks were lost, lock_watch.go counts by class, lock_polls.go who polls,
//	               lock_audit.go for who writes it down; the first two are state
//	prefetch.go    memory read ahead of the requests
//	snapshot.go    the stream (snapshot_codec.go: its numbers and strings); restore.go reads it
//	renew.go       a state as the beginning of another cluster; survey.go says what is in a state
//	keyspace/      items, their order, their deadlines
//	collection/    hashes, sets, lists and sorted sets
//	locks/         who holds which lock, and who waits
//	waits/         who waits for keys
//	rights/        what a user may do
//	lua/           the script engine
//
// DESIGN.md says why it is so and what was refused.
package fsm
