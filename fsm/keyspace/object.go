package keyspace

// Object is a collection as the value of an item.
//
// Copies of an item share the object, so a snapshot or a roll-back keeps a collection at the cost of a pointer.
// Generations make that safe. An owner increments its generation when it begins to keep items, and changes a collection
// in place only if the object has the current generation: see [Item.OwnedBy]. It never changes an older object, but a
// clone.
type Object struct {
	collection Collection
	generation uint64
	// class is the size class of the item when it was last stored. The collection may have changed in place since then.
	class sizeClass
}

// objectBytes is the memory of an Object.
const objectBytes = 32

// NewCollection returns an item with a collection, which the item then owns. hash is the [Hash] of the key.
func NewCollection(hash uint64, key string, v Collection, deadlineMillis int64, generation uint64) Item {
	it := NewItem(hash, key, "", deadlineMillis, EncodingAuto)
	it.object = &Object{collection: v, generation: generation}
	return it
}

// lock is the object of all items of [KindLock]. It is immutable.
var lock = &Object{collection: lockMarker{}, generation: ^uint64(0)}

// lockMarker is an empty collection without memory.
type lockMarker struct{}

func (lockMarker) Kind() Kind             { return KindLock }
func (lockMarker) Len() int               { return 1 }
func (lockMarker) Bytes() int64           { return 0 }
func (m lockMarker) Clone() Collection    { return m }
func (lockMarker) Encoding() string       { return "raw" }
func (lockMarker) SavedWords() int        { return 0 }
func (lockMarker) Save(func(string) bool) {}

// LockText is the key of an item of [KindLock] in the item's own format. An owner that also keeps the text has the key
// in memory only once.
type LockText string

// NewLockText returns the text of a key, in new memory.
func NewLockText(key string) LockText { return LockText(join(key, "", EncodingAuto)) }

// Key returns the key, a part of the text's memory. Requires: NewLockText has returned the text.
func (t LockText) Key() string {
	n := 0
	for t[n] >= oneByte {
		n++
	}
	return string(t[n+1:])
}

// NewLock returns an item of [KindLock], which shares the memory of the text. hash is the [Hash] of the key.
func NewLock(hash uint64, text LockText) Item {
	return Item{data: string(text), Hash: hash, object: lock}
}

// LockText returns the text of the item. Requires: the item is of [KindLock].
func (it *Item) LockText() LockText { return LockText(it.data) }

// IsLock reports whether the item is of [KindLock].
func (it *Item) IsLock() bool { return it.object == lock }

// Collection returns the value if it is no string, and otherwise nil. Only the rules of [Object] allow changes.
func (it *Item) Collection() Collection {
	if it.object == nil {
		return nil
	}
	return it.object.collection
}

// IsString reports whether the value is a string.
func (it *Item) IsString() bool { return it.object == nil }

// Kind returns the kind of the value.
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

// Renamed returns an item of another key with the same object. Only one of the two items may be stored. Requires: the
// value is a collection.
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

// The kinds. Snapshots have their numbers.
const (
	KindString Kind = iota
	KindHash
	KindList
	KindSet
	KindSortedSet
	// KindLock is the kind of a marker, whose value the owner keeps elsewhere.
	KindLock
)

// String returns the reply to TYPE.
func (k Kind) String() string {
	return [...]string{"string", "hash", "list", "set", "zset", "lock"}[k]
}

// Collection is a value that is no string. Package collection implements it.
//
// One goroutine changes a collection in place. A clone and its original share memory, but later changes of either do
// not affect the other. So a snapshot or a roll-back keeps a collection by a clone.
type Collection interface {
	Kind() Kind
	// Len returns the number of elements. An empty collection is not stored.
	Len() int
	// Bytes returns the estimated memory of the collection, without its item, in constant time. It follows from the
	// changes in the log, so all nodes agree.
	Bytes() int64
	// Clone takes constant time, or copies a collection of a few KiB.
	Clone() Collection
	// Encoding returns the reply to OBJECT ENCODING.
	Encoding() string
	// SavedWords returns the number of words of Save.
	SavedWords() int
	// Save calls put with the words from which Load of package collection restores it, until put returns false. Equal
	// collections have equal words. A word is valid until put returns.
	Save(put func(word string) bool)
}
