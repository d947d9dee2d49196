package keyspace

import (
	"strings"

	"github.com/zeebo/xxh3"
)

// Item is a key with its value. Items are copied freely: copies share an immutable string, so
// neither a snapshot nor a roll-back copies a value.
//
// Key and value share one string, the one allocation of a held lock.
type Item struct {
	data string // the key, then the value
	// Hash is [Hash] of the key.
	Hash uint64
	// DeadlineMillis is the last instant of cluster time at which the key is there, or [Never].
	DeadlineMillis int64
	// Version is the owner's. The keyspace keeps the number.
	Version  uint64
	keyLen   uint32
	Encoding Encoding
}

// Never is the deadline of an item that does not end.
const Never = 0

// Encoding is what OBJECT ENCODING answers. Nothing else depends on it.
type Encoding uint8

// The encodings.
const (
	// EncodingAuto: decided by the value, as Redis's tryObjectEncoding does.
	EncodingAuto Encoding = iota
	// EncodingRaw: the value was built by APPEND or SETRANGE.
	EncodingRaw
	// EncodingText: never "int", though the value may look like a number (INCRBYFLOAT).
	EncodingText
	// EncodingCount is the number of encodings.
	EncodingCount
)

// Hash is the fixed function that orders the keys of a keyspace. SCAN cursors and snapshots rest on
// Hash, so all nodes must agree for ever.
func Hash(key string) uint64 { return xxh3.HashString(key) }

// NewItem makes an item that shares no memory with its arguments. hash is [Hash] of the key.
func NewItem(hash uint64, key, value string, deadlineMillis int64, e Encoding) Item {
	return Item{data: join(key, value), Hash: hash, DeadlineMillis: deadlineMillis, keyLen: uint32(len(key)), Encoding: e}
}

// ItemOf makes an item of a string that holds the key, of keyLen bytes, and then the value.
func ItemOf(data string, keyLen int) Item {
	return Item{data: data, Hash: Hash(data[:keyLen]), keyLen: uint32(keyLen)}
}

// join is key+value in separate memory. The operator alone returns one operand itself when the
// other is empty, and would keep a log entry alive.
func join(key, value string) string {
	if key == "" || value == "" {
		return strings.Clone(key + value)
	}
	return key + value
}

// Key is the item's key.
func (it *Item) Key() string { return it.data[:it.keyLen] }

// Value is the item's value.
func (it *Item) Value() string { return it.data[it.keyLen:] }

// Ended reports whether the item is absent at nowMillis: the deadline has passed, as in Redis, and
// is not merely reached. The leader cuts a stamp down to a whole millisecond, so a grant may be
// almost a millisecond later than its stamp. A lease that ended when the last millisecond begins
// would end that much early.
func (it *Item) Ended(nowMillis int64) bool {
	return it.DeadlineMillis != Never && it.DeadlineMillis < nowMillis
}

// Before reports whether the item comes before other in a keyspace.
func (it *Item) Before(other *Item) bool {
	if it.Hash != other.Hash {
		return it.Hash < other.Hash
	}
	return it.Key() < other.Key()
}
