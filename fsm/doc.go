// Package fsm is the replicated state machine: what a command means. It holds
// the keys, their deadlines, cluster time, the script cache, and which batches
// were applied.
//
// It promises:
//   - Deterministic: machines that apply the same entries have the same state,
//     to the byte of their snapshots, and give the same replies. No clock, no
//     goroutine, no I/O, no chance, no map order, no floating point that could
//     differ between processors; tidy_test.go holds it to that. What a node does
//     of its own accord (compile a script, sweep away a key whose time is over,
//     leave out replies that nobody waits for) shows in no reply and no snapshot.
//   - At most once: a batch is applied or skipped, by its node's session.
//   - Time belongs to the log: a key ends when cluster time, which entries
//     carry, has passed its deadline; then for every command at once.
//   - No request that decodes makes it panic, or run without bound. A script or a
//     transaction that runs over its budget leaves nothing behind.
//   - An entry costs a fraction of a second at most. What its budget has no room for is not
//     applied, and the sink is told so; batches that cost little always have room.
//   - A snapshot is taken in constant time and does not change; one that is
//     damaged is refused, and the state stays.
//
// It does not know who leads, what the time is, or what a connection is. It
// does not check who may do what. How large the state may grow its entries say.
//
// Package server feeds it: [Machine.Apply] with every committed entry in order,
// [Machine.Read] for linearizable reads, [Machine.Snapshot] and
// [Machine.Restore] for raft. Commands come as protocol's table names them,
// checked for arity by the node that took them, and checked here again.
//
// Start reading at fsm.go, then state.go, call.go and set.go. The parts:
//
//	fsm.go         the machine: lock, entries, reads
//	state.go       everything that is replicated; database.go, item.go, session.go
//	call.go        a command on its way through the state
//	ops.go         which function is which command
//	set.go …       the commands: set, strings, counters, keys, expire, scan, exec, eval
//	watch.go       what EXEC compares with what WATCH saw
//	budget.go      how much work a request, a batch and an entry may be
//	memory.go      what the state takes, and what is refused when it is full
//	undo.go        what a script or a transaction changed
//	chance.go      where math.random begins
//	scriptcache.go the sources of scripts
//	snapshot.go    the stream; restore.go reads it
//	lua/           the script engine
//
// DESIGN.md says why it is so, what was refused, and what was measured.
package fsm
