// Package keyspace has the items of a database: by key, in the order of the keys' hashes, and by deadline.
//
//	Keyspace ─┬─ items: directory                    deadlines: deadlineIndex
//	          │   top ── by the first bits             chunks ── blocks of 64
//	          │    ├─ segment ── by the next bits       (deadline, hash, size), in order
//	          │    │    ├─ bucket: 20 slots of items
//	          │    │    ├─ bucket
//	          │    │    └─ … overflow: a B-tree, for keys whose hashes are too alike
//	          │    └─ segment …
//	          └─ bytes: the estimated memory of the items that have not ended
//
// It promises:
//   - A search reads a few cache lines, whatever the number of keys, even if a client has chosen keys with similar
//     hashes. Growth copies at most a thousandth of the pointers.
//   - [Keyspace.Capture] takes constant time. The capture is immutable.
//   - The order of items and every count depend only on the items: not on the time at which ended items were swept, nor
//     on the order in which the items were stored.
//   - No clock, no goroutine, no lock, no map.
//
// The package does not know what a value means, what a command is, or what the time is. For a roll-back, the caller
// keeps the results of [Keyspace.Put] and [Keyspace.Remove], and stores them again.
//
// Start reading at keyspace.go, then directory.go. The parts:
//
//	keyspace.go   items and deadlines together, and their memory
//	item.go       a key with its value
//	mark.go       the mark of a stock lock, with its holder
//	object.go     a collection as a value, and the rules for its changes
//	directory.go  search and change; resize.go splits and joins
//	bucket.go     up to 20 items with similar hashes
//	deadlines.go  the deadlines in order, and the removal of ended items
//	prefetch.go   memory read ahead of a search
//	size.go       the estimated memory of an item
//
// DESIGN.md has the reasons, and the alternatives that were refused.
package keyspace
