package keyspace

import (
	"encoding/binary"
	"strings"

	"github.com/zeebo/xxh3"
)

// Item is a key with its value. Items are copied freely: copies share an immutable string and an [Object], so neither a
// snapshot nor a roll-back copies a value.
//
// Key and value share one string, which is the only allocation of a held lock. The string begins with the encoding and
// the length of the key: in the item they would add 8 bytes to every lock.
type Item struct {
	data string // a head, the key, the value, and maybe a mark: see join
	// object has the value if it is a collection. Otherwise it is nil.
	object *Object
	// Hash is the [Hash] of the key.
	Hash uint64
	// DeadlineMillis is the last instant of cluster time at which the key exists, or [Never].
	DeadlineMillis int64
	// stamp has [Item.Version] in its low bits and [Item.Account] above: another field would add 8 bytes to every lock.
	stamp uint64
}

// The bounds of the parts of a stamp. At a million items a second the versions last for 500 years.
const (
	versionBits = 54
	MaxVersion  = 1<<versionBits - 1
	MaxAccount  = 1<<(64-versionBits) - 1
)

// Version returns a number that the owner has set. The keyspace does not use it.
func (it *Item) Version() uint64 { return it.stamp & MaxVersion }

// SetVersion sets the version. Requires: version is at most [MaxVersion].
func (it *Item) SetVersion(version uint64) { it.stamp = it.stamp&^MaxVersion | version }

// Account returns the number of the account that the item counts for, or 0: see [Keyspace.Usage].
func (it *Item) Account() int { return int(it.stamp >> versionBits) }

// SetAccount sets the account. Requires: account is at most [MaxAccount].
func (it *Item) SetAccount(account int) {
	it.stamp = it.stamp&MaxVersion | uint64(account)<<versionBits
}

// Never is the deadline of an item that does not end.
const Never = 0

// Encoding is the reply to OBJECT ENCODING. Nothing else depends on it.
type Encoding uint8

// The encodings.
const (
	// EncodingAuto follows from the value, as in Redis's tryObjectEncoding.
	EncodingAuto Encoding = iota
	// EncodingRaw is that of a value that APPEND or SETRANGE has made.
	EncodingRaw
	// EncodingText is never "int", even if the value looks like a number (INCRBYFLOAT).
	EncodingText
	// EncodingCount is the number of encodings. The head of an item has room for a fourth, which is marked.
	EncodingCount
)

// Hash is the function that orders the keys of a keyspace. SCAN cursors and snapshots depend on it, so it must never
// change.
func Hash(key string) uint64 { return xxh3.HashString(key) }

// NewItem returns an item that shares no memory with its arguments. hash is the [Hash] of the key.
func NewItem(hash uint64, key, value string, deadlineMillis int64, e Encoding) Item {
	return Item{data: join(key, value, e), Hash: hash, DeadlineMillis: deadlineMillis}
}

// ItemOf returns an item for the bytes of a key, of keyLen bytes, and then of the value. It keeps nothing of content.
func ItemOf(content []byte, keyLen int, e Encoding) Item {
	var buf [binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(buf[:0], uint64(keyLen)<<encodingBits|uint64(e))
	var b strings.Builder
	b.Grow(len(head) + len(content))
	b.Write(head)
	b.Write(content)
	return Item{data: b.String(), Hash: xxh3.Hash(content[:keyLen])}
}

// join returns the data of an item, in new memory: a uvarint of the key's length and the encoding, then key and value.
func join(key, value string, e Encoding) string {
	head := uint(len(key))<<encodingBits | uint(e)
	if head < oneByte {
		return heads[head:head+1] + key + value
	}
	return string(binary.AppendUvarint(nil, uint64(head))) + key + value
}

const (
	encodingBits = 2
	oneByte      = 0x80 // the first number that takes two bytes as a uvarint
)

// heads has all heads of one byte, one after another.
var heads = func() string {
	var b [oneByte]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

// head returns the number before the key, and its length.
func (it *Item) head() (head, n int) {
	if it.data == "" {
		return 0, 0 // the zero item
	}
	for shift := 0; ; shift += 7 {
		c := it.data[n]
		n++
		head |= int(c&(oneByte-1)) << shift
		if c < oneByte {
			return head, n
		}
	}
}

// Key returns the item's key.
func (it *Item) Key() string {
	if it.data != "" && it.data[0] < oneByte {
		return it.data[1 : 1+int(it.data[0])>>encodingBits]
	}
	head, n := it.head()
	return it.data[n : n+head>>encodingBits]
}

// Value returns the item's value if it is a string.
func (it *Item) Value() string {
	head, n := it.head()
	return it.data[n+head>>encodingBits : len(it.data)-it.tailLen()]
}

// Encoding returns the encoding of a string.
func (it *Item) Encoding() Encoding {
	head, _ := it.head()
	if e := Encoding(head & (1<<encodingBits - 1)); e != marked {
		return e
	}
	return EncodingAuto
}

// contentLen returns the length of key, value and mark.
func (it *Item) contentLen() int {
	_, n := it.head()
	return len(it.data) - n
}

// Ended reports whether the item is missing at nowMillis. As in Redis, its deadline must have passed, and not just be
// reached. The leader rounds stamps down to milliseconds, so a grant may happen almost a millisecond after its stamp,
// and a lease that ended with its last millisecond's beginning would be too short by as much.
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
