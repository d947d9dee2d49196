package keyspace

import (
	"math"
	"slices"
	"sort"
)

// deadline is the deadline of an item with this hash. The second byte of the hash is replaced by the item's
// [sizeClass]: no directory is large enough to need that byte, and the tags of buckets are the first byte.
type deadline struct {
	millis int64
	hash   uint64
}

const (
	classShift = 8
	classMask  = 0xff << classShift
)

// bytes returns the estimated memory of the item.
func (a deadline) bytes() int64 { return sizeClass(a.hash >> classShift).bytes() }

func (a deadline) before(b deadline) bool {
	return a.millis < b.millis || a.millis == b.millis && a.hash < b.hash
}

// deadlineIndex has all deadlines in order, including equal ones of keys with equal hashes. It has only numbers: the
// garbage collector skips its memory, and a comparison reads no item.
//
// The index is a list of chunks of blocks of deadlines. Two levels suffice, since a chunk has some ten thousand
// deadlines. Snapshots do not copy the index, since the items have the deadlines, too.
//
// Invariant: all deadlines of a block are at least the block's low, and at most the low of the next block. Blocks and
// chunks are not empty.
type deadlineIndex struct {
	chunks []*chunk
	count  int
}

type chunk struct {
	blocks []block
	count  int
	bytes  int64 // the estimated memory of the items
}

type block struct {
	low       deadline
	n         int
	deadlines *[blockSize]deadline // the first n
	bytes     int64                // the estimated memory of the items
}

const (
	blockSize   = 64
	chunkBlocks = 512
)

// first returns the earliest deadline.
func (x *deadlineIndex) first() (d deadline, ok bool) {
	if len(x.chunks) == 0 {
		return d, false
	}
	return x.chunks[0].blocks[0].deadlines[0], true
}

// position returns the block for a deadline: the last block whose low is not after it.
func (x *deadlineIndex) position(d deadline) (c, b int) {
	c = len(x.chunks) - 1
	// Usually it is the last block of all.
	if d.before(x.chunks[c].blocks[0].low) {
		c = max(0, sort.Search(c, func(i int) bool { return d.before(x.chunks[i].blocks[0].low) })-1)
	}
	return c, x.chunks[c].position(d)
}

func (c *chunk) position(d deadline) int {
	last := len(c.blocks) - 1
	if !d.before(c.blocks[last].low) {
		return last
	}
	low, high := 0, last // blocks[low].low <= d, or low is 0; d < blocks[high].low
	for high-low > 1 {
		middle := int(uint(low+high) >> 1)
		if d.before(c.blocks[middle].low) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// search returns the number of deadlines of the block that are before d.
func (b *block) search(d deadline) int {
	low, high := 0, b.n
	for low < high {
		middle := int(uint(low+high) >> 1)
		if b.deadlines[middle].before(d) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (x *deadlineIndex) add(d deadline) {
	if len(x.chunks) == 0 {
		x.chunks = []*chunk{{blocks: []block{{low: d, deadlines: new([blockSize]deadline)}}}}
	}
	i, j := x.position(d)
	if x.chunks[i].blocks[j].n == blockSize {
		x.split(i, j)
		i, j = x.position(d)
	}
	c := x.chunks[i]
	b := &c.blocks[j]
	at := b.n
	if at > 0 && d.before(b.deadlines[at-1]) {
		at = b.search(d)
		copy(b.deadlines[at+1:b.n+1], b.deadlines[at:b.n])
	}
	b.deadlines[at] = d
	b.n++
	if d.before(b.low) {
		b.low = d
	}
	b.bytes += d.bytes()
	c.bytes += d.bytes()
	c.count++
	x.count++
}

// split makes room in block j of chunk i.
func (x *deadlineIndex) split(i, j int) {
	c := x.chunks[i]
	if len(c.blocks) == chunkBlocks {
		middle := chunkBlocks / 2
		if i == len(x.chunks)-1 {
			middle = chunkBlocks * 3 / 4 // most new deadlines go to the end
		}
		next := &chunk{blocks: slices.Clone(c.blocks[middle:])}
		clear(c.blocks[middle:])
		c.blocks = c.blocks[:middle]
		for _, b := range next.blocks {
			next.count += b.n
			next.bytes += b.bytes
		}
		c.count -= next.count
		c.bytes -= next.bytes
		x.chunks = slices.Insert(x.chunks, i+1, next)
		if j >= middle {
			i, j, c = i+1, j-middle, next
		}
	}
	b := &c.blocks[j]
	middle := blockSize / 2
	if i == len(x.chunks)-1 && j == len(c.blocks)-1 {
		middle = blockSize * 3 / 4
	}
	next := block{low: b.deadlines[middle], n: b.n - middle, deadlines: new([blockSize]deadline)}
	copy(next.deadlines[:], b.deadlines[middle:b.n])
	next.bytes = sumBytes(next.deadlines[:next.n])
	b.bytes -= next.bytes
	b.n = middle
	c.blocks = slices.Insert(c.blocks, j+1, next)
}

// remove removes a deadline that equals d. Requires: there is one.
func (x *deadlineIndex) remove(d deadline) {
	i, j := x.position(d)
	for {
		b := &x.chunks[i].blocks[j]
		if at := b.search(d); at < b.n && b.deadlines[at] == d {
			x.drop(i, j, at, 1)
			return
		}
		// Earlier blocks may have equal deadlines, too.
		if j--; j < 0 {
			i--
			j = len(x.chunks[i].blocks) - 1
		}
	}
}

// drop removes n deadlines of block j of chunk i, from at on.
func (x *deadlineIndex) drop(i, j, at, n int) {
	c := x.chunks[i]
	b := &c.blocks[j]
	bytes := sumBytes(b.deadlines[at : at+n])
	copy(b.deadlines[at:], b.deadlines[at+n:b.n])
	b.n -= n
	b.bytes -= bytes
	c.bytes -= bytes
	c.count -= n
	x.count -= n
	if b.n >= blockSize/4 {
		return
	}
	if b.n == 0 {
		c.blocks = slices.Delete(c.blocks, j, j+1)
	} else if j+1 < len(c.blocks) && b.n+c.blocks[j+1].n <= blockSize/2 {
		c.join(j)
	} else if j > 0 && b.n+c.blocks[j-1].n <= blockSize/2 {
		c.join(j - 1)
	}
	if len(c.blocks) < chunkBlocks/4 {
		x.joinChunks(i)
	}
}

// join moves the deadlines of block j+1 to block j.
func (c *chunk) join(j int) {
	b, next := &c.blocks[j], &c.blocks[j+1]
	b.n += copy(b.deadlines[b.n:], next.deadlines[:next.n])
	b.bytes += next.bytes
	c.blocks = slices.Delete(c.blocks, j+1, j+2)
}

// joinChunks joins chunk i with a neighbour if both are short.
func (x *deadlineIndex) joinChunks(i int) {
	if len(x.chunks[i].blocks) == 0 {
		x.chunks = slices.Delete(x.chunks, i, i+1)
		return
	}
	if i+1 == len(x.chunks) {
		i--
	}
	if i < 0 || len(x.chunks[i].blocks)+len(x.chunks[i+1].blocks) > chunkBlocks/2 {
		return
	}
	c, next := x.chunks[i], x.chunks[i+1]
	c.blocks = append(c.blocks, next.blocks...)
	c.count += next.count
	c.bytes += next.bytes
	x.chunks = slices.Delete(x.chunks, i+1, i+2)
}

// before counts the deadlines before nowMillis.
func (x *deadlineIndex) before(nowMillis int64) (n int) {
	pivot := deadline{millis: nowMillis}
	for i, c := range x.chunks {
		if i+1 < len(x.chunks) && x.chunks[i+1].blocks[0].low.before(pivot) {
			n += c.count
			continue
		}
		for j := range c.blocks {
			if b := &c.blocks[j]; b.low.before(pivot) {
				n += b.search(pivot)
			}
		}
		break
	}
	return n
}

// bytesBefore returns the estimated memory of the items whose deadlines are before nowMillis.
func (x *deadlineIndex) bytesBefore(nowMillis int64) (n int64) {
	pivot := deadline{millis: nowMillis}
	for i, c := range x.chunks {
		if i+1 < len(x.chunks) && x.chunks[i+1].blocks[0].low.before(pivot) {
			n += c.bytes
			continue
		}
		for j := range c.blocks {
			b := &c.blocks[j]
			if last := b.search(pivot); last < b.n {
				return n + sumBytes(b.deadlines[:last])
			}
			n += b.bytes
		}
		break
	}
	return n
}

// sumBytes returns the estimated memory of the items of these deadlines.
func sumBytes(deadlines []deadline) (n int64) {
	for _, d := range deadlines {
		n += d.bytes()
	}
	return n
}

// next returns the first deadline that is not before fromMillis.
func (x *deadlineIndex) next(fromMillis int64) (millis int64, ok bool) {
	if len(x.chunks) == 0 {
		return 0, false
	}
	pivot := deadline{millis: fromMillis}
	// The search begins in the block of the millisecond before, which may have deadlines equal to the pivot.
	i, j := x.position(deadline{max(fromMillis, math.MinInt64+1) - 1, math.MaxUint64})
	c := x.chunks[i]
	if b := &c.blocks[j]; b.search(pivot) < b.n {
		return b.deadlines[b.search(pivot)].millis, true
	}
	switch {
	case j+1 < len(c.blocks):
		return c.blocks[j+1].deadlines[0].millis, true
	case i+1 < len(x.chunks):
		return x.chunks[i+1].blocks[0].deadlines[0].millis, true
	}
	return 0, false
}

// hashesBefore stores in hashes those of the first block's deadlines before nowMillis, and returns their number.
func (x *deadlineIndex) hashesBefore(nowMillis int64, hashes []uint64) (n int) {
	b := &x.chunks[0].blocks[0]
	for n < min(b.n, len(hashes)) && b.deadlines[n].millis < nowMillis {
		hashes[n] = b.deadlines[n].hash
		n++
	}
	return n
}

// dropBefore removes all deadlines before nowMillis.
func (x *deadlineIndex) dropBefore(nowMillis int64) {
	pivot := deadline{millis: nowMillis}
	for len(x.chunks) > 0 {
		n := x.chunks[0].blocks[0].search(pivot)
		if n == 0 {
			return
		}
		x.drop(0, 0, 0, n)
	}
}

// Sweep removes at most limit items that have ended at nowMillis, the earliest deadlines first, and calls f
// with each. Equal keyspaces are swept in the same order.
func (k *Keyspace) Sweep(nowMillis int64, limit int, f func(it *Item)) (swept int) {
	for swept < limit {
		first, ok := k.deadlines.first()
		if !ok || first.millis >= nowMillis {
			break
		}
		if swept%MaxPrefetch == 0 {
			k.prefetchEnded(nowMillis)
		}
		it := k.items.withDeadline(first)
		removed := k.Remove(it.Hash, it.Key())
		f(&removed)
		swept++
	}
	return swept
}

// SweepAll removes all items that have ended at nowMillis. Many items go in a single pass and
// without a search.
func (k *Keyspace) SweepAll(nowMillis int64) (swept int) {
	ended := k.deadlines.before(nowMillis)
	if ended < k.items.count/passShare {
		return k.Sweep(nowMillis, ended, func(*Item) {})
	}
	k.items.removeEnded(nowMillis)
	k.deadlines.dropBefore(nowMillis)
	k.marks = 0
	clear(k.usage)
	k.items.ascend(0, func(it *Item) bool {
		k.countMarks(it, 1)
		k.countUsage(it, it.class(), 1)
		return true
	})
	return ended
}

// passShare is the number of items that cost as much to skip as one costs to remove.
const passShare = 16
