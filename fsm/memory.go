package fsm

import (
	"github.com/holdfast/holdfast/protocol"
)

// The memory of the state is counted, not measured, so that all nodes count alike and refuse the same
// writes. DESIGN.md has the rules and why they hold.
const (
	// scriptBytes is a cached script, and scriptFactor each byte of the source: what TestScriptMemory measures for the
	// worst sources, and a half more. Before versionScripts formerScriptFactor stood in its place.
	scriptBytes        = 1 << 10
	scriptFactor       = 64
	formerScriptFactor = 16
	// sessionBytes is a session, and rangeBytes each of the session's ranges.
	sessionBytes = 128
	rangeBytes   = 16
)

// usedBytes is what counts against the limit, without the sessions.
func (st *state) usedBytes() int64 {
	scripts := scriptsBytes(st.scripts.bySHA.Len(), st.scripts.loadedBytes+st.scripts.rememberedBytes, st.version)
	return st.ItemBytes + scripts + st.Waits.Bytes() + st.Locks.Bytes() + st.history.usedBytes()
}

// scriptsBytes is what so many cached scripts count for in a cluster of a version.
func scriptsBytes(scripts, sourceBytes int, version byte) int64 {
	factor := int64(scriptFactor)
	if version < versionScripts {
		factor = formerScriptFactor
	}
	return int64(scripts)*scriptBytes + int64(sourceBytes)*factor
}

func (ss sessions) usedBytes() (n int64) {
	for _, s := range ss {
		n += sessionBytes + int64(len(s.node)) + int64(len(s.applied))*rangeBytes
	}
	return n
}

var errOOMExec = protocol.ExecAbortedBy(protocol.ErrOOM).Value()

// limitMemory sets the memory limit of the entry. The sessions count as they are when the entry begins.
func (c *call) limitMemory(limitBytes uint64) {
	c.limited = limitBytes != 0
	c.limitBytes = int64(min(limitBytes, 1<<62)) - c.st.sessions.usedBytes()
}

// Full reports whether the state is over the limit. Commands that may make the state grow are then
// refused.
func (c *call) Full() bool { return c.limited && c.st.usedBytes() > c.limitBytes }

// versionScripts is the first version of the entry that counts scripts for what they take, refuses SCRIPT LOAD when
// the state is full, and charges for a compilation what it costs.
const versionScripts = 6

// Shares of the limit of memory.
const (
	// loadedShare is what scripts of SCRIPT LOAD may take though the state is full: clients load the scripts that give
	// locks back.
	loadedShare = 16
	// rememberedShare is what the sources that EVAL leaves may take.
	rememberedShare = 8
)

// refusesLoad reports whether there is no room for another script of SCRIPT LOAD.
func (c *call) refusesLoad(source string) bool {
	if c.EntryVersion < versionScripts || !c.limited {
		return false
	}
	sc, more := &c.st.scripts, scriptsBytes(1, len(source), c.EntryVersion)
	loaded := scriptsBytes(sc.loaded(), sc.loadedBytes, c.EntryVersion)
	return c.st.usedBytes()+more > c.limitBytes && loaded+more > c.limitBytes/loadedShare
}

// remembersMore reports whether the sources that EVAL has left take more than they may.
func (c *call) remembersMore() bool {
	sc := &c.st.scripts
	if sc.byTurn.Len() > maxRemembered || sc.rememberedBytes > maxRememberedBytes {
		return true
	}
	return c.EntryVersion >= versionScripts && c.limited && sc.byTurn.Len() > 0 &&
		scriptsBytes(sc.byTurn.Len(), sc.rememberedBytes, c.EntryVersion) > c.limitBytes/rememberedShare
}

// refusesQueued reports whether some request of a transaction would be refused now.
func (c *call) refusesQueued(queued string) bool {
	if !c.Full() {
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
