// Package history records what clients did and what they were told.
//
// It promises: every operation has an invocation and a completion time on one
// monotonic clock (nanoseconds since the run began); an operation whose outcome
// its client does not know is [Info] and never anything else; and a history that
// was written as JSON lines is read back equal. Beside the JSON lines it writes
// EDN in the form that Jepsen's own checkers read.
//
// It does not judge: that is package checker. It does not map replies to
// outcomes: that is package wire.
//
// Workloads call [Recorder]; checkers and reports read the [History] it gives.
// Start reading at [Op].
package history
