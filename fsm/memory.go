package fsm

import (
	"github.com/holdfast/holdfast/protocol"
)

// What the state takes of memory is counted, not measured: the same on all nodes, so that
// all refuse the same writes. DESIGN.md has the rules and why they hold.
const (
	// scriptBytes and scriptFactor: what a cached script takes, and each byte of its source.
	scriptBytes  = 1 << 10
	scriptFactor = 16
	// sessionBytes and spanBytes: what a session takes, and each of its spans.
	sessionBytes = 128
	spanBytes    = 16
)

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
		st.itemBytes += d.Bytes()
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
