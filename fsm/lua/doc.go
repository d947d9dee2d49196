// Package lua runs Redis scripts inside the replicated state machine: Lua 5.1
// to the letter, with the libraries, conversions and error texts of Redis 7.
//
// It promises:
//   - Deterministic: the same source, keys, arguments and host replies give the
//     same calls to the host, the same reply and the same step and byte counts
//     on every replica, run and processor architecture. No clock, no
//     randomness, no address, no map order, no fused multiply-add.
//   - Bounded: every instruction is charged, and each loop or allocation inside
//     of an instruction by a formula ([Limits]). A script that exceeds its budget
//     ends with [ErrBudget], which its own pcall cannot catch. No source and no
//     value overflows the Go stack.
//   - No source, value or argument makes it panic.
//   - Immutable: a [Program] is safe for any number of concurrent runs.
//
// It does not undo the writes of a script that fails. Redis keeps the writes of a
// script that raises an error; the caller rolls back after [ErrBudget]. The package
// has no commands: redis.call calls the [Host].
//
// Only package fsm uses it: fsm calls [Cache.Compile] once for each source and
// [Runner.Run] for each EVAL. DESIGN.md says why this is an engine of our own, and
// lists the intended differences from Redis.
//
// Start reading at cache.go and run.go, then vm.go. The compiler is in lex*.go,
// parse*.go and code*.go, and its result in proto.go. The virtual machine is in vm.go,
// call.go, meta.go and raise.go, and its data in value.go, table*.go and number.go.
// The libraries are in lib*.go. lib_redis.go and convert.go call the host. All of these
// charge the budget in state.go.
package lua
