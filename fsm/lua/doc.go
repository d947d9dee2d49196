// Package lua runs Redis scripts inside the replicated state machine: Lua 5.1
// to the letter, with the libraries, conversions and error texts of Redis 7.
//
// It promises:
//   - Deterministic: the same source, keys, arguments and host replies give the
//     same calls to the host, the same reply and the same step and byte counts
//     on every replica, run and processor architecture. No clock, no
//     randomness, no address, no map order, no fused multiply-add.
//   - Bounded: every instruction is counted, and whatever loops or allocates
//     inside one instruction is charged by a formula ([Limits]). A script that
//     runs over ends with [ErrBudget], which its own pcall cannot catch. No
//     source and no value overflows the Go stack.
//   - No source, value or argument makes it panic.
//   - Immutable: a [Program] is safe for any number of concurrent runs.
//
// It does not promise: to undo what a script did before it failed. Redis keeps
// the writes of a script that raises an error; the caller rolls back after
// [ErrBudget]. It knows no command: redis.call goes to the [Host].
//
// Package fsm calls [Cache.Compile] once for each source and [Runner.Run] for every
// EVAL; nothing else uses it. DESIGN.md says why this is an engine of our own,
// and lists where it differs from Redis on purpose.
//
// Start reading at cache.go and run.go, then vm.go. The parts, in the order of a
// script's way: lex*.go, parse*.go and code*.go make a proto (proto.go) of the
// source; vm.go runs it, with call.go, meta.go and raise.go; value.go, table*.go
// and number.go are its data; lib*.go are its libraries, lib_redis.go and convert.go
// its border to the host. The engine's parts charge the budget in state.go.
package lua
