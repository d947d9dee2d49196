package fsm

import (
	"math/bits"

	"github.com/holdfast/holdfast/protocol"
)

// What the state takes of memory is counted, not measured: the same on all nodes, so that
// all refuse the same writes. DESIGN.md has the rules and why they hold.
const (
	// itemBytes is what an item takes beside its key and value, its deadline included.
	itemBytes = 112
	// scriptBytes and scriptFactor: what a cached script takes, and each byte of its source.
	scriptBytes  = 1 << 10
	scriptFactor = 16
	// sessionBytes and spanBytes: what a session takes, and each of its spans.
	sessionBytes = 128
	spanBytes    = 16
)

// sizeClass is the length of an item's key and value, rounded up as an allocator does: to 16
// bytes, and from 128 bytes on to an eighth of a power of two. It fits in a byte, so that a
// due can carry it.
type sizeClass uint8

const sizeUnit = 16

func classOf(n int) sizeClass {
	units := (uint64(n) + sizeUnit - 1) / sizeUnit
	if units < 8 {
		return sizeClass(units)
	}
	shift := bits.Len64(units) - 4
	// From 8 to 16; 16 is the first class of the next power of two.
	eighths := (units + 1<<shift - 1) >> shift
	return sizeClass(min(uint64(shift)*8+eighths, 255))
}

// bytes is what an item of the class counts for.
func (c sizeClass) bytes() int64 {
	if c < 8 {
		return int64(c)*sizeUnit + itemBytes
	}
	return int64(8+c&7)<<(c>>3-1)*sizeUnit + itemBytes
}

func (it *item) class() sizeClass { return classOf(len(it.data)) }

// usedBytes is what counts against the limit, but for the sessions.
func (st *state) usedBytes() int64 { return st.itemBytes + st.scripts.usedBytes() }

func (sc *scriptCache) usedBytes() int64 {
	return int64(sc.bySHA.Len())*scriptBytes + int64(sc.loadedBytes+sc.rememberedBytes)*scriptFactor
}

func (ss sessions) usedBytes() (n int64) {
	for _, s := range ss {
		n += sessionBytes + int64(len(s.node)) + int64(len(s.spans))*spanBytes
	}
	return n
}

// sumItems counts what the items of all databases take.
func (st *state) sumItems() {
	st.itemBytes = 0
	for _, d := range st.databases {
		st.itemBytes += d.bytes
	}
}

var (
	errOOM     = protocol.ErrOOM.Value()
	errOOMExec = protocol.ExecAbortedBy(protocol.ErrOOM).Value()
)

// limitMemory sets what the entry lets keys and scripts take. The sessions
// are counted as they are when the entry begins.
func (c *call) limitMemory(limitBytes uint64) {
	c.limited = limitBytes != 0
	c.limitBytes = int64(min(limitBytes, 1<<62)) - c.st.sessions.usedBytes()
}

// full reports whether the state takes more than it may: commands that may make it grow are
// refused then.
func (c *call) full() bool { return c.limited && c.st.usedBytes() > c.limitBytes }

// refusesQueued reports whether one of the requests of a transaction would be refused now.
func (c *call) refusesQueued(queued string) bool {
	if !c.full() {
		return false
	}
	var r protocol.Request
	for queued != "" {
		queued, _ = protocol.NextRequest(queued, &r) // it was read before
		if b := c.lookup(r.Args[0]); b != nil && b.grows {
			return true
		}
	}
	return false
}
