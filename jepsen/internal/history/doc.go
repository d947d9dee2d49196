// Package history records what clients did and what was answered.
//
// It promises: every operation has an invocation and a completion time on one
// monotonic clock (nanoseconds since the run began); an operation whose outcome
// a client does not know is [Info] and never anything else; and a history that
// was written as JSON lines is read back equal. Beside the JSON lines the package writes
// EDN in the form that Jepsen's own checkers read.
//
// Verdicts are package checker's. The package does not map replies to
// outcomes: that is package wire.
//
// Workloads call [Recorder]; checkers and reports read the [History].
// Start reading at [Op].
package history
