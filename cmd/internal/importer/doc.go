// Package importer copies keys from a Redis server to Holdfast, or to any other server that speaks Redis's protocol:
// `holdfast import`.
//
// It promises:
//
//   - A counter never goes back: the larger of the two numbers stays (FENCE.PASS's rule).
//   - What is copied never ends sooner than at the source: the time to live is counted from the answer of the source,
//     and given anew with each try. It ends later by the time of the two exchanges at most. A lease that ended sooner
//     would have two holders.
//   - A key that is there with another value stays as it is, and is reported.
//   - Each key is there as a whole or not at all, whenever the program is killed; large keys grow under a name of their
//     own (tempPrefix), which ends by itself. Another run does what is missing, and nothing twice.
//   - Memory is bounded, whatever the keys are.
//
// It does not promise a snapshot: keys that change meanwhile are copied as they are when their turn comes, each for
// itself. The source is only read, by SCAN, TYPE, the reads of each type, PTTL, MULTI and WATCH.
//
// Start reading at importer.go, the way of a page of keys; source.go has addresses and connections, read.go and
// large.go how a key is read at one instant, target.go and import.lua how it is written.
package importer
