package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

func (m *machine) IsNoop(body string, nowMillis int64) bool {
	var r protocol.Request
	if rest, err := protocol.NextRequest(body, &r); err != nil || rest != "" {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch name := r.Args[0]; {
	case name == "setnx" && len(r.Args) > 1,
		name == "set" && len(r.Args) > 3 && slices.ContainsFunc(r.Args[3:], isNX):
		it := m.st.Databases[r.DB].Find(keyspace.Hash(r.Args[1]), r.Args[1])
		return it != nil && !it.Ended(nowMillis) && !it.IsLock()
	case name == "lock-command" && len(r.Args) > lockCommandWords:
		return m.wouldWaitForLock(r.DB, r.Args[lockCommandWords:], nowMillis)
	case name == "wait-for-key" && len(r.Args) > waitForKeyWords:
		return m.wouldBlock(r.DB, r.Args[waitForKeyWords:], nowMillis)
	}
	return false
}

// isNX reports whether a word is NX. The word may be the operand of another option: see [Machine.IsNoop].
func isNX(word string) bool { return command.IsWord(word, "NX") }

func (m *machine) wouldWaitForLock(db int, words []string, nowMillis int64) bool {
	b := m.ops[words[0]]
	many := words[0] == "lock.acquireall"
	if !many && words[0] != "lock.acquire" || !b.acceptsArity(len(words)) {
		return false
	}
	o := lockOptions{
		request: locks.Request{DB: db}, command: words[0], many: many,
	}
	if o.read(words).IsError() || o.request.Notify {
		return false
	}
	return m.st.Locks.IsBlocked(&o.request, nowMillis)
}

// wouldBlock reports whether all keys are missing that a blocking command takes from.
func (m *machine) wouldBlock(db int, words []string, nowMillis int64) bool {
	b := m.ops[words[0]]
	if b == nil || !b.blocks || !b.acceptsArity(len(words)) {
		return false
	}
	var room [4]int
	keys := b.row.AppendKeyPositions(room[:0], words)
	if words[0] == "blmove" || words[0] == "brpoplpush" {
		keys = keys[:min(1, len(keys))] // the second key is the destination
	}
	for _, at := range keys {
		key := words[at]
		if it := m.st.Databases[db].Find(keyspace.Hash(key), key); it != nil && !it.Ended(nowMillis) {
			return false
		}
	}
	return len(keys) > 0
}
