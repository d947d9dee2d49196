// Package workload holds what the clients do, and which checkers judge it.
//
// Each workload is one file: the round that a client goes through again and again, the reads
// at the end, and its checkers. Clients speak the wire dialects of stock lock libraries
// (dialect.go): the same commands in the same order, scripts by EVALSHA with the fallback
// that the library has, and its own retries, each on record as an operation of its own.
//
// It promises: everything that was sent is recorded before its first byte leaves; the
// outcome recorded is that of package wire; keys are given up for new ones before
// so much is unknown about them that a checker would search for ever ([Rotation]).
//
// A workload knows nothing of faults. Start reading at [Workload], then register.go.
package workload
