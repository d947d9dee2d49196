package keyspace

import (
	"encoding/binary"
	"strings"

	"github.com/zeebo/xxh3"
)

// Item is a key with its value. Items are copied freely: copies share an immutable string and an
// [Object], so neither a snapshot nor a roll-back copies a value.
//
// Key and value share one string, the one allocation of a held lock. Length of the key and encoding
// stand in front: in the item they would take 8 bytes of every lock.
type Item struct {
	data string // a head, the key, the value, and maybe a mark: see join
	// object is the value if the value is a collection, else nil.
	object *Object
	// Hash is [Hash] of the key.
	Hash uint64
	// DeadlineMillis is the last instant of cluster time at which the key is there, or [Never].
	DeadlineMillis int64
	// stamp is [Item.Version], and above it [Item.Account]: a field of its own would take 8 bytes of every lock.
	stamp uint64
}

// The bounds of what a stamp has room for. A million items a second use up the versions in 500 years.
const (
	versionBits = 54
	MaxVersion  = 1<<versionBits - 1
	MaxAccount  = 1<<(64-versionBits) - 1
)

// Version is the owner's. The keyspace keeps the number.
func (it *Item) Version() uint64 { return it.stamp & MaxVersion }

// SetVersion sets the version. Requires: version is at most [MaxVersion].
func (it *Item) SetVersion(version uint64) { it.stamp = it.stamp&^MaxVersion | version }

// Account is the owner's number of what the item counts for, 0: nothing. See [Keyspace.Usage].
func (it *Item) Account() int { return int(it.stamp >> versionBits) }

// SetAccount sets the account. Requires: account is at most [MaxAccount].
func (it *Item) SetAccount(account int) {
	it.stamp = it.stamp&MaxVersion | uint64(account)<<versionBits
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
	// EncodingCount is the number of encodings. There is room in the head for four: the fourth is marked.
	EncodingCount
)

// Hash is the fixed function that orders the keys of a keyspace. SCAN cursors and snapshots rest on
// Hash, so all nodes must agree for ever.
func Hash(key string) uint64 { return xxh3.HashString(key) }

// NewItem makes an item that shares no memory with its arguments. hash is [Hash] of the key.
func NewItem(hash uint64, key, value string, deadlineMillis int64, e Encoding) Item {
	return Item{data: join(key, value, e), Hash: hash, DeadlineMillis: deadlineMillis}
}

// ItemOf makes an item of the bytes of a key, of keyLen bytes, and then of the value. ItemOf keeps nothing
// of content.
func ItemOf(content []byte, keyLen int, e Encoding) Item {
	var buf [binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(buf[:0], uint64(keyLen)<<encodingBits|uint64(e))
	var b strings.Builder
	b.Grow(len(head) + len(content))
	b.Write(head)
	b.Write(content)
	return Item{data: b.String(), Hash: xxh3.Hash(content[:keyLen])}
}

// join is the data of an item, in memory of its own: a uvarint of the key's length and the encoding,
// then key and value.
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

// heads is every head of one byte, one after another.
var heads = func() string {
	var b [oneByte]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

// head returns the number in front of the key, and its length.
func (it *Item) head() (head, n int) {
	if it.data == "" {
		return 0, 0 // no item at all
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

// Key is the item's key.
func (it *Item) Key() string {
	if it.data != "" && it.data[0] < oneByte {
		return it.data[1 : 1+int(it.data[0])>>encodingBits]
	}
	head, n := it.head()
	return it.data[n : n+head>>encodingBits]
}

// Value is the item's value, if the value is a string.
func (it *Item) Value() string {
	head, n := it.head()
	return it.data[n+head>>encodingBits : len(it.data)-it.tailLen()]
}

// Encoding is the encoding of a string.
func (it *Item) Encoding() Encoding {
	head, _ := it.head()
	if e := Encoding(head & (1<<encodingBits - 1)); e != marked {
		return e
	}
	return EncodingAuto
}

// contentLen is the length of key, value and mark.
func (it *Item) contentLen() int {
	_, n := it.head()
	return len(it.data) - n
}

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
