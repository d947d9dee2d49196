package keyspace

// Kind is the kind of a value.
type Kind uint8

// The kinds. The numbers stand in snapshots.
const (
	KindString Kind = iota
	KindHash
	KindList
	KindSet
	KindSortedSet
	// KindLock is a marker: the owner keeps what belongs to the key elsewhere.
	KindLock
)

// String is the reply of TYPE.
func (k Kind) String() string {
	return [...]string{"string", "hash", "list", "set", "zset", "lock"}[k]
}

// Collection is a value that is not a string. Package collection has the kinds.
//
// A collection is changed in place by one goroutine. A clone and its original share memory, and neither
// sees a later change of the other. So a snapshot or a roll-back keeps a collection by a clone.
type Collection interface {
	Kind() Kind
	// Len is the number of elements. A collection without elements is not stored.
	Len() int
	// Bytes is what the collection counts for, beside its item. Bytes takes constant time, and follows
	// from the changes that the log made: nodes count alike.
	Bytes() int64
	// Clone takes constant time, or copies a collection of a few KiB.
	Clone() Collection
	// Encoding is the reply of OBJECT ENCODING.
	Encoding() string
	// SavedWords is the number of words of Save.
	SavedWords() int
	// Save calls put with the words that make the collection again, until put returns false. Equal
	// collections give equal words. A word is good until put returns.
	Save(put func(word string) bool)
}
