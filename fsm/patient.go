package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// maxPatientBytes is the size of a body above which it is not looked at.
const maxPatientBytes = 4 << 10

// IsPatient reports whether body is a single command that waits, or is refused, while another has what the command
// asks for: a blocking command, or a request for a lock.
func IsPatient(body []byte) bool {
	return len(body) <= maxPatientBytes && protocol.MayWait(body)
}

func (m *machine) WouldWait(body string, nowMillis int64) bool {
	var r protocol.Request
	if rest, err := protocol.NextRequest(body, &r); err != nil || rest != "" {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch name := r.Args[0]; {
	case name == "native" && len(r.Args) > lockCommandWords:
		return m.wouldWaitForLock(r.DB, r.Args[lockCommandWords:], nowMillis)
	case name == "block" && len(r.Args) > blockWords:
		return m.wouldBlock(r.DB, r.Args[blockWords:], nowMillis)
	}
	return false
}

func (m *machine) wouldWaitForLock(db int, words []string, nowMillis int64) bool {
	b := m.ops[words[0]]
	if b == nil || b.row == nil || !b.takes(len(words)) {
		return false
	}
	o := lockOptions{
		version: m.st.meaning(), request: locks.Request{DB: db}, command: words[0],
		many: words[0] == "lock.acquireall",
	}
	if o.read(words).IsError() || o.request.Notify {
		return false
	}
	return m.st.Locks.Blocked(&o.request, nowMillis)
}

// wouldBlock reports whether none of the keys is there that a blocking command takes from.
func (m *machine) wouldBlock(db int, words []string, nowMillis int64) bool {
	b := m.ops[words[0]]
	if b == nil || !b.blocks || !b.takes(len(words)) {
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

// Claim is a command that takes a free key, and else changes nothing: SETNX, or SET with NX.
type Claim struct {
	db  int
	key string
}

// IsClaim reports whether body is a claim and nothing else.
func IsClaim(body []byte) bool {
	_, _, ok := protocol.SetNXKey(body)
	return ok
}

// ClaimOf returns the claim in body, and keeps nothing of body. Requires: [IsClaim].
func ClaimOf(body []byte) Claim {
	db, key, _ := protocol.SetNXKey(body)
	return Claim{db, string(key)}
}

func (m *machine) WouldRefuse(c Claim, nowMillis int64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	it := m.st.Databases[c.db].Find(keyspace.Hash(c.key), c.key)
	return it != nil && !it.Ended(nowMillis) && !it.IsLock()
}
