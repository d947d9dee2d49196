package collection

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Hash has fields with values. A small hash has them in the order in which they were added.
type Hash struct {
	small packed        // name, value, name, value, …; empty if large
	large *table[field] // nil if small
	count int
	bytes int64 // of the fields of large
}

var _ keyspace.Collection = (*Hash)(nil)

// field is a field of a large hash. data is the name and then the value.
type field struct {
	data    string
	hash    uint64
	nameLen uint32
}

func (f field) order() uint64 { return f.hash }
func (f field) name() string  { return f.data[:f.nameLen] }
func (f field) value() string { return f.data[f.nameLen:] }
func (f field) bytes() int64  { return fieldBytes + allocated(len(f.data)) }

func newField(name, value string) field {
	var b strings.Builder
	b.Grow(len(name) + len(value))
	b.WriteString(name)
	b.WriteString(value)
	return field{data: b.String(), hash: orderOf(name), nameLen: uint32(len(name))}
}

// sought returns a field for a search. It shares the memory of name.
func sought(name string) field {
	return field{data: name, hash: orderOf(name), nameLen: uint32(len(name))}
}

// NewHash returns an empty hash.
func NewHash() *Hash { return &Hash{} }

// Get returns the value of a field.
func (h *Hash) Get(name string) (value string, ok bool) {
	if h.large != nil {
		f, ok := h.large.Get(sought(name))
		if !ok {
			return "", false
		}
		return f.value(), true
	}
	from, to := h.small.find(name, 2)
	if from == to {
		return "", false
	}
	return string(h.small[from+2+len(name) : to]), true
}

// Put sets the value of a field. added reports whether the field is new.
func (h *Hash) Put(name, value string) (added bool) {
	if h.large == nil && (len(name) > maxPackedWord || len(value) > maxPackedWord) {
		h.enlarge()
	}
	if h.large != nil {
		return h.putLarge(newField(name, value))
	}
	from, to := h.small.find(name, 2)
	h.small = h.small.splice(from, to, name, value)
	if from != to {
		return false
	}
	if h.count++; h.count > maxPacked {
		h.enlarge()
	}
	return true
}

func (h *Hash) putLarge(f field) (added bool) {
	old, replaced := h.large.Set(f)
	h.bytes += f.bytes()
	if replaced {
		h.bytes -= old.bytes()
		return false
	}
	h.count++
	return true
}

func (h *Hash) enlarge() {
	rest := h.small
	h.small, h.large, h.count = "", newTable[field](), 0
	for rest != "" {
		var name, value string
		name, rest = rest.cut()
		value, rest = rest.cut()
		h.putLarge(newField(name, value))
	}
}

// Remove removes a field, and reports whether there was one.
func (h *Hash) Remove(name string) bool {
	if h.large != nil {
		old, there := h.large.Delete(sought(name))
		if there {
			h.count--
			h.bytes -= old.bytes()
		}
		return there
	}
	from, to := h.small.find(name, 2)
	if from == to {
		return false
	}
	h.small = h.small.splice(from, to)
	h.count--
	return true
}

// At returns the field at an index. Requires: 0 <= place < Len.
func (h *Hash) At(place int) (name, value string) {
	if h.large != nil {
		f, _ := h.large.GetAt(place)
		return f.name(), f.value()
	}
	rest := h.small
	for range place {
		_, rest = rest.cut()
		_, rest = rest.cut()
	}
	name, rest = rest.cut()
	value, _ = rest.cut()
	return name, value
}

// Ascend calls f with the fields whose name's hash is at least from, until f returns false. A large hash has them in
// the order of the hashes. Requires: f does not change the hash.
func (h *Hash) Ascend(from uint64, f func(order uint64, name, value string) bool) {
	if h.large != nil {
		h.large.Ascend(field{hash: from}, func(e field) bool { return f(e.hash, e.name(), e.value()) })
		return
	}
	for rest := h.small; rest != ""; {
		var name, value string
		name, rest = rest.cut()
		value, rest = rest.cut()
		if order := orderOf(name); order >= from && !f(order, name, value) {
			return
		}
	}
}

// All calls f with all fields, until f returns false. Requires: f does not change the hash.
func (h *Hash) All(f func(name, value string) bool) {
	if h.large != nil {
		h.large.Scan(func(e field) bool { return f(e.name(), e.value()) })
		return
	}
	for rest := h.small; rest != ""; {
		var name, value string
		name, rest = rest.cut()
		value, rest = rest.cut()
		if !f(name, value) {
			return
		}
	}
}

// Small reports whether the hash has at most a few KiB. A search then reads all of it.
func (h *Hash) Small() bool { return h.large == nil }

// Kind is [keyspace.KindHash].
func (h *Hash) Kind() keyspace.Kind { return keyspace.KindHash }

// Len returns the number of fields.
func (h *Hash) Len() int { return h.count }

// Bytes returns the estimated memory of the hash.
func (h *Hash) Bytes() int64 { return headBytes + allocated(len(h.small)) + h.bytes }

// Clone returns a hash with the same fields.
func (h *Hash) Clone() keyspace.Collection {
	c := *h
	if h.large != nil {
		c.large = h.large.IsoCopy()
	}
	return &c
}

// Encoding returns Redis's name of the form.
func (h *Hash) Encoding() string {
	if h.large != nil {
		return encodingTable
	}
	return encodingPacked
}

// SavedWords returns the number of words of Save.
func (h *Hash) SavedWords() int { return 1 + 2*h.count }

// Save writes the encoding, then names and values.
func (h *Hash) Save(put func(word string) bool) {
	if !put(h.Encoding()) {
		return
	}
	h.All(func(name, value string) bool { return put(name) && put(value) })
}
