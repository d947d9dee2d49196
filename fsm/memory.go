package fsm

import (
	"github.com/holdfast/holdfast/protocol"
)

// The memory of the state is counted, not measured, so that all nodes count alike and refuse the same
// writes. DESIGN.md has the rules and why they hold.
const (
	// scriptBytes is a cached script, and scriptFactor each byte of the source.
	scriptBytes  = 1 << 10
	scriptFactor = 16
	// sessionBytes is a session, and rangeBytes each of the session's ranges.
	sessionBytes = 128
	rangeBytes   = 16
)

// usedBytes is what counts against the limit, without the sessions.
func (st *state) usedBytes() int64 {
	return st.itemBytes + st.scripts.usedBytes() + st.waits.Bytes() + st.locks.Bytes() + st.history.usedBytes()
}

func (sc *scriptCache) usedBytes() int64 {
	return int64(sc.bySHA.Len())*scriptBytes + int64(sc.loadedBytes+sc.rememberedBytes)*scriptFactor
}

func (ss sessions) usedBytes() (n int64) {
	for _, s := range ss {
		n += sessionBytes + int64(len(s.node)) + int64(len(s.applied))*rangeBytes
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

// memoryLimit is what keys and scripts may take by the entry: limitBytes, if limited.
type memoryLimit struct {
	limited    bool
	limitBytes int64
}

// limitMemory sets the memory limit of the entry. The sessions count as they are when the entry begins.
func (c *call) limitMemory(limitBytes uint64) {
	c.limited = limitBytes != 0
	c.limitBytes = int64(min(limitBytes, 1<<62)) - c.st.sessions.usedBytes()
}

// full reports whether the state is over the limit. Commands that may make the state grow are then
// refused.
func (c *call) full() bool { return c.limited && c.st.usedBytes() > c.limitBytes }

// refusesQueued reports whether some request of a transaction would be refused now.
func (c *call) refusesQueued(queued string) bool {
	if !c.full() {
		return false
	}
	var r protocol.Request
	for queued != "" {
		queued, _ = protocol.NextRequest(queued, &r) // parsed before without error
		if b := c.lookup(wordOf(r.Args)); b != nil && b.grows {
			return true
		}
	}
	return false
}
