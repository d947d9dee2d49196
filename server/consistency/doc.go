// Package consistency compares the states of the members while the cluster serves. The leader names an index of the
// log, at intervals and when a member asks for it; each member hashes the state that it had behind that entry; the
// leader collects the hashes, and tells each member what a majority of the voters has.
//
// It promises:
//   - a member whose state at an index differs from the state of a majority of the voters is put into quarantine, and
//     stays there over restarts, until its state was replaced by another member's and compared again;
//   - the states are compared at least once an interval while a leader has others that
//     answer, whichever node leads, and after each start and each snapshot that was installed;
//   - where no majority of the voters has the same state, each member says so, and none is put into quarantine;
//   - a capture holds up entries as long as a snapshot does, and hashing takes a quarter of a core at most; at most two
//     captures are kept in memory.
//
// The package does not know what a state is: [fsm.Snapshot] writes equal bytes for equal states. What quarantine means
// is package replica's.
//
// # Goroutines
//
// [Checker.Run] has three. One hashes captures. One replaces the state when a repair is asked for. The caller's names
// indices, asks the leader for a check, and collects hashes, with a goroutine for each other member meanwhile. Handlers
// of requests run on package memberrpc's goroutines.
//
// # Locks
//
// Checker.mu is a leaf. Checker.deciding is held over the change of the quarantine, which is I/O, by one goroutine at a
// time.
//
// Start reading at checker.go, then collect.go. DESIGN.md has the reasons.
package consistency
