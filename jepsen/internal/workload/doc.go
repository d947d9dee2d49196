// Package workload holds what the clients do, and which checkers judge that.
//
// Each workload is a file: the round that a client goes through again and again, the reads
// at the end, and the checkers. Clients speak the wire dialects of stock lock libraries
// (dialect.go): the same commands in the same order, scripts by EVALSHA with the library's
// fallback and retries, each on record as an operation.
//
// It promises: everything that was sent is recorded before the first byte leaves; the
// outcome recorded is package wire's; keys are given up for new ones before
// so much is unknown about them that a checker would search for ever ([Rotation]).
//
// A workload knows nothing of faults. Start reading at [Workload], then register.go.
package workload
