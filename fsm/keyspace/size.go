package keyspace

import "math/bits"

// itemBytes is the estimated memory of an item without key and value, including the deadline.
const itemBytes = 112

// sizeClass is the length of an item's key and value, rounded up like an allocation: to 16 bytes, and from 128 bytes on
// to an eighth of a power of two. It fits into a byte of a [deadline].
type sizeClass uint8

const sizeUnit = 16

func classOf(n int) sizeClass {
	units := (uint64(n) + sizeUnit - 1) / sizeUnit
	if units < 8 {
		return sizeClass(units)
	}
	shift := bits.Len64(units) - 4
	// From 8 to 16. 16 is the first class of the next power of two.
	eighths := (units + 1<<shift - 1) >> shift
	return sizeClass(min(uint64(shift)*8+eighths, 255))
}

// bytes returns the estimated memory of an item of the class.
func (c sizeClass) bytes() int64 {
	if c < 8 {
		return int64(c)*sizeUnit + itemBytes
	}
	return int64(8+c&7)<<(c>>3-1)*sizeUnit + itemBytes
}

// class returns the size class of the item. For a collection, it is that at the last store.
func (it *Item) class() sizeClass {
	if it.object == nil || it.object == lock {
		return classOf(it.contentLen())
	}
	return it.object.class
}

// Bytes returns the estimated memory of the item: see [Keyspace.Bytes].
func (it *Item) Bytes() int64 { return it.class().bytes() }

// measure returns the size class by the present size of a collection, and stores it.
func (it *Item) measure() sizeClass {
	if it.object == nil || it.object == lock {
		return classOf(it.contentLen())
	}
	class := classOf(it.contentLen() + objectBytes + int(it.object.collection.Bytes()))
	if class != it.object.class {
		it.object.class = class
	}
	return class
}

// deadline returns the item's entry in the [deadlineIndex].
func (it *Item) deadline() deadline { return it.deadlineAs(it.class()) }

func (it *Item) deadlineAs(class sizeClass) deadline {
	return deadline{it.DeadlineMillis, it.Hash&^classMask | uint64(class)<<classShift}
}
