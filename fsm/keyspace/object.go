package keyspace

// Object is a collection as the value of an item.
//
// Copies of an item share the object, so a snapshot or a roll-back keeps a collection for the price of
// a pointer. Generations make that safe. An owner counts its generation up when it begins to keep items,
// and changes a collection in place only if the object is of the current generation: see
// [Item.OwnedBy]. Every older object stays as it is, and the owner goes on with a clone.
type Object struct {
	collection Collection
	generation uint64
	// class is what the item counted for when it was stored last. The collection may have changed in
	// place since then.
	class sizeClass
}

// objectBytes is the memory of an Object.
const objectBytes = 32

// NewCollection makes an item with a collection, which the item then owns. hash is [Hash] of the key.
func NewCollection(hash uint64, key string, v Collection, deadlineMillis int64, generation uint64) Item {
	it := NewItem(hash, key, "", deadlineMillis, EncodingAuto)
	it.object = &Object{collection: v, generation: generation}
	return it
}

// lock is the object of all items of [KindLock]. It never changes.
var lock = &Object{collection: lockMarker{}, generation: ^uint64(0)}

// lockMarker is an empty collection, which counts for nothing.
type lockMarker struct{}

func (lockMarker) Kind() Kind             { return KindLock }
func (lockMarker) Len() int               { return 1 }
func (lockMarker) Bytes() int64           { return 0 }
func (m lockMarker) Clone() Collection    { return m }
func (lockMarker) Encoding() string       { return "raw" }
func (lockMarker) SavedWords() int        { return 0 }
func (lockMarker) Save(func(string) bool) {}

// LockText is the key of an item of [KindLock] as the item keeps it. An owner who keeps the text, too, has the memory
// of the key once.
type LockText string

// NewLockText makes the text of a key, in memory of its own.
func NewLockText(key string) LockText { return LockText(join(key, "", EncodingAuto)) }

// Key is the key, a part of the text's memory. Requires: the text is of [NewLockText].
func (t LockText) Key() string {
	n := 0
	for t[n] >= oneByte {
		n++
	}
	return string(t[n+1:])
}

// NewLock makes an item of [KindLock], which shares the memory of the text. hash is [Hash] of the key.
func NewLock(hash uint64, text LockText) Item {
	return Item{data: string(text), Hash: hash, object: lock}
}

// LockText is the text of the item. Requires: the item is of [KindLock].
func (it *Item) LockText() LockText { return LockText(it.data) }

// IsLock reports whether the item is of [KindLock].
func (it *Item) IsLock() bool { return it.object == lock }

// Collection is the item's value if the value is not a string, else nil. A collection may be changed
// only by the rules of [Object].
func (it *Item) Collection() Collection {
	if it.object == nil {
		return nil
	}
	return it.object.collection
}

// IsString reports whether the value is a string.
func (it *Item) IsString() bool { return it.object == nil }

// Kind is the kind of the value.
func (it *Item) Kind() Kind {
	if it.object == nil {
		return KindString
	}
	return it.object.collection.Kind()
}

// OwnedBy reports whether the item's collection may be changed in place in this generation.
func (it *Item) OwnedBy(generation uint64) bool {
	return it.object != nil && it.object.generation == generation
}

// Shares reports whether both items have the same object.
func (it *Item) Shares(other *Item) bool { return it.object != nil && it.object == other.object }

// With returns the item with another collection, which the item then owns.
func (it *Item) With(v Collection, generation uint64) Item {
	next := *it
	next.object = &Object{collection: v, generation: generation}
	return next
}

// Renamed returns an item of another key with the same object. Only one of the items may stay.
// Requires: the value is a collection.
func (it *Item) Renamed(hash uint64, key string) Item {
	next := NewItem(hash, key, "", it.DeadlineMillis, EncodingAuto)
	next.object = it.object
	return next
}

// Copied returns an item of another key with a clone of the collection. Requires: the value is a
// collection.
func (it *Item) Copied(hash uint64, key string, generation uint64) Item {
	return NewCollection(hash, key, it.object.collection.Clone(), it.DeadlineMillis, generation)
}

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
