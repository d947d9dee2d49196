package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

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
