// Package keyspace holds the items of a database: by key, in the order of the keys' hashes, and by
// deadline.
//
//	Keyspace ─┬─ items: directory                    deadlines: deadlineIndex
//	          │   top ── by the first bits             chunks ── blocks of 64
//	          │    ├─ segment ── by the next bits       (deadline, hash, size), in order
//	          │    │    ├─ bucket: 20 slots of items
//	          │    │    ├─ bucket
//	          │    │    └─ … overflow: a B-tree, for keys whose hashes are too alike
//	          │    └─ segment …
//	          └─ bytes: what the items count for that have not ended
//
// It promises:
//   - A search touches a few lines of memory, whatever the number of keys, also where a client has
//     chosen keys with like hashes. Nothing that grows copies more than a thousandth of the pointers.
//   - [Keyspace.Capture] takes constant time. The capture does not change.
//   - The order of items and every count depend on the items alone: not on the moment at which ended
//     items were swept, nor on the order in which the items came.
//   - No clock, no goroutine, no lock, no map.
//
// The package does not know what a value means, what a command is, or what the time is: the caller says.
// No changes are noted for roll-back either. The caller keeps what [Keyspace.Put] and [Keyspace.Remove]
// return, and puts it back.
//
// Start reading at keyspace.go, then directory.go. The parts:
//
//	keyspace.go   the door: items and deadlines together, and what they count for
//	item.go       a key with its value
//	mark.go       that an item is taken as a lock, and by whom
//	object.go     a collection as a value, what one is, and who may change it
//	directory.go  search and change; resize.go splits and joins
//	bucket.go     up to 20 items whose hashes begin alike
//	deadlines.go  the deadlines in order, and the removal of ended items
//	prefetch.go   memory read ahead of a search
//	size.go       what an item counts for
//
// DESIGN.md says why it is so, and what was refused.
package keyspace
