// Package collection holds the values that have elements: hashes, sets, lists and sorted sets.
//
// It promises:
//   - What Redis promises of a collection: which elements there are, the order of elements where Redis
//     has an order, and the encoding.
//   - A search or a change takes logarithmic time, or walks a collection of a few KiB. A clone takes
//     constant time, or copies a few KiB.
//   - A string that a collection returns does not change and may be kept. A collection shares no memory
//     with the strings that it was given.
//   - Deterministic: the same changes give the same collection, count of bytes and saved words.
//   - [Load] believes nothing: words that no Save wrote are an error.
//
// The package does not know what a command is, what a change costs, or how long an element may be: the
// caller says. No clock, no goroutine, no lock, no range over a map.
//
// A small collection is packed: one string with all elements, made anew by each change. A lock of a
// lock library is a hash of one or two fields, so a small hash must take little memory. A larger
// collection is a B-tree. Redis's limits say when a small collection becomes a larger one, and as in
// Redis a larger one stays larger. So the encoding follows from the form.
//
// A list is neither: buffers at the ends, which are changed in place, and between them a tree of runs of 2
// KiB. So a queue pushes and pops without copying, and ten million elements are 100,000 objects. A sorted
// set has two trees, by score and by name.
//
// The trees of hashes and sets are in the order of the elements' hashes. So a cursor of HSCAN or SSCAN
// is a position in that order, and needs no memory: DESIGN.md of package fsm has the reasons.
//
// The parts:
//
//	hash.go    fields with values
//	set.go     members
//	list.go    elements between two ends; list_edit.go changes the middle, list_encoding.go is what Redis says
//	run.go     elements in one piece of memory
//	sortedset.go  members with scores; scores.go has the small form, gather.go makes large ones at once
//	packed.go  the small forms of hashes and sets, and sets of integers
//	table.go   the larger form of hashes and sets
//	load.go    a collection out of saved words
//
// DESIGN.md has the decisions, and what was refused.
package collection
