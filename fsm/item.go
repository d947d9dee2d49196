package fsm

import (
	"strings"

	"github.com/zeebo/xxh3"
)

// item is a key with its value. Items stand in the leaves of the keyspace and are
// copied freely; what they share is data, which nobody can change. So snapshots, and
// what a script's roll-back keeps, cost no copy of a value.
//
// Key and value share one string: it is the one allocation that a held lock costs.
type item struct {
	data string // the key, then the value
	// hash places the key in its database, and so in SCAN's order: see [hashKey].
	hash uint64
	// deadlineMillis is the last instant of cluster time at which the key is
	// there; 0: it does not end.
	deadlineMillis int64
	// version is the machine's counter at the moment this item was stored. No two
	// items ever share one. EXEC compares it.
	version  uint64
	keyLen   uint32
	encoding encoding
}

// encoding is what OBJECT ENCODING answers. Nothing else depends on it.
type encoding uint8

const (
	// encodingAuto: decided by the value, as Redis's tryObjectEncoding does.
	encodingAuto encoding = iota
	// encodingRaw: the value was built by APPEND or SETRANGE.
	encodingRaw
	// encodingText: never "int", though it may look like one (INCRBYFLOAT).
	encodingText
	encodingCount
)

// hashKey is the fixed function that orders the keys of a database. All nodes
// must agree on it for ever: SCAN cursors and snapshots rest on it.
func hashKey(key string) uint64 { return xxh3.HashString(key) }

// before is the order of the items of a database.
func (it *item) before(other *item) bool {
	if it.hash != other.hash {
		return it.hash < other.hash
	}
	return it.key() < other.key()
}

// join is key+value in memory of its own: the operator alone would return an
// operand as it is when the other is empty, and with it keep a log entry alive.
func join(key, value string) string {
	if key == "" || value == "" {
		return strings.Clone(key + value)
	}
	return key + value
}

func (it *item) key() string   { return it.data[:it.keyLen] }
func (it *item) value() string { return it.data[it.keyLen:] }
