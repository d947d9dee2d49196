package collection

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// The names of the forms, in replies to OBJECT ENCODING and in snapshots.
const (
	encodingPacked = "listpack"
	encodingTable  = "hashtable"
	encodingInts   = "intset"
)

// Set has members in no order of their own. A set of few integers has them in ascending order, a small set in the order
// in which they were added.
type Set struct {
	form  string         // one of the encodings
	ints  []int64        // ascending
	small packed         // the members
	large *table[member] // else nil
	count int
	bytes int64 // of the members of large
}

var _ keyspace.Collection = (*Set)(nil)

// member is a member of a large set.
type member struct {
	data string
	hash uint64
}

func (m member) order() uint64 { return m.hash }
func (m member) name() string  { return m.data }
func (m member) bytes() int64  { return memberBytes + allocated(len(m.data)) }

// NewSet returns an empty set, in the form that Redis uses for a set that will get about n members, beginning with
// first.
func NewSet(first string, n int) *Set {
	_, integer := parseInt(first)
	switch {
	case integer && n <= maxInts:
		return NewIntSet()
	case n <= maxPacked:
		return &Set{form: encodingPacked}
	}
	return &Set{form: encodingTable, large: newTable[member]()}
}

// NewIntSet returns an empty set in the form for integers.
func NewIntSet() *Set { return &Set{form: encodingInts} }

// NewLike returns an empty set in the form of another.
func NewLike(other *Set) *Set {
	s := &Set{form: other.form}
	if other.large != nil {
		s.large = newTable[member]()
	}
	return s
}

// Expect makes the set a large one if n further members would not fit into the present form. As in Redis, members that
// the set has already count as well.
func (s *Set) Expect(n int) {
	if s.form == encodingInts && n > maxInts || s.form == encodingPacked && n > maxPacked {
		s.enlarge()
	}
}

// Has reports whether name is a member.
func (s *Set) Has(name string) bool {
	switch s.form {
	case encodingInts:
		n, ok := parseInt(name)
		if !ok {
			return false
		}
		_, there := slices.BinarySearch(s.ints, n)
		return there
	case encodingPacked:
		from, to := s.small.find(name, 1)
		return from != to
	}
	_, there := s.large.Get(member{name, orderOf(name)})
	return there
}

// Add adds a member, and reports whether the member is new.
func (s *Set) Add(name string) bool {
	switch s.form {
	case encodingInts:
		return s.addToInts(name)
	case encodingPacked:
		if from, to := s.small.find(name, 1); from != to {
			return false
		}
		if s.count < maxPacked && len(name) <= maxPackedWord {
			s.small = s.small.splice(len(s.small), len(s.small), name)
			s.count++
			return true
		}
		s.enlarge()
	}
	return s.addToLarge(name)
}

func (s *Set) addToLarge(name string) bool {
	m := member{name, orderOf(name)}
	if _, there := s.large.Get(m); there {
		return false
	}
	m.data = strings.Clone(name)
	s.large.Set(m)
	s.count++
	s.bytes += m.bytes()
	return true
}

func (s *Set) enlarge() { s.rebuild(&Set{form: encodingTable, large: newTable[member]()}) }

// rebuild moves all members to an empty set, which replaces s.
func (s *Set) rebuild(to *Set) {
	s.All(func(name string) bool { return to.Add(name) })
	*s = *to
}

// Remove removes a member, and reports whether there was one.
func (s *Set) Remove(name string) bool {
	switch s.form {
	case encodingInts:
		return s.removeFromInts(name)
	case encodingPacked:
		from, to := s.small.find(name, 1)
		if from == to {
			return false
		}
		s.small = s.small.splice(from, to)
	default:
		old, there := s.large.Delete(member{name, orderOf(name)})
		if !there {
			return false
		}
		s.bytes -= old.bytes()
	}
	s.count--
	return true
}

// At returns the member at an index. Requires: 0 <= place < Len.
func (s *Set) At(place int) string {
	switch s.form {
	case encodingInts:
		return formatInt(s.ints[place])
	case encodingPacked:
		rest := s.small
		for range place {
			_, rest = rest.cut()
		}
		name, _ := rest.cut()
		return name
	}
	m, _ := s.large.GetAt(place)
	return m.data
}

// Ascend calls f with the members whose hash is at least from, until f returns false. A large set has them in the order
// of the hashes. Requires: f does not change the set.
func (s *Set) Ascend(from uint64, f func(order uint64, name string) bool) {
	if s.large != nil {
		s.large.Ascend(member{hash: from}, func(m member) bool { return f(m.hash, m.data) })
		return
	}
	s.All(func(name string) bool {
		order := orderOf(name)
		return order < from || f(order, name)
	})
}

// All calls f with all members, until f returns false. Requires: f does not change the set.
func (s *Set) All(f func(name string) bool) {
	switch s.form {
	case encodingInts:
		for _, n := range s.ints {
			if !f(formatInt(n)) {
				return
			}
		}
	case encodingPacked:
		for rest := s.small; rest != ""; {
			var name string
			if name, rest = rest.cut(); !f(name) {
				return
			}
		}
	default:
		s.large.Scan(func(m member) bool { return f(m.data) })
	}
}

// AscendAt calls f with the members from an index on, until f returns false. Requires: f does not change the set.
func (s *Set) AscendAt(place int, f func(name string) bool) {
	if s.large == nil || place == 0 {
		s.All(func(name string) bool {
			place--
			return place >= 0 || f(name)
		})
		return
	}
	if m, ok := s.large.GetAt(place); ok {
		s.large.Ascend(m, func(m member) bool { return f(m.data) })
	}
}

// Small reports whether the set has at most a few KiB.
func (s *Set) Small() bool { return s.large == nil }

// Kind is [keyspace.KindSet].
func (s *Set) Kind() keyspace.Kind { return keyspace.KindSet }

// Len returns the number of members.
func (s *Set) Len() int { return s.count }

// Bytes returns the estimated memory of the set.
func (s *Set) Bytes() int64 {
	return headBytes + intBytes*int64(len(s.ints)) + allocated(len(s.small)) + s.bytes
}

// Clone returns a set with the same members.
func (s *Set) Clone() keyspace.Collection {
	c := *s
	c.ints = slices.Clone(s.ints)
	if s.large != nil {
		c.large = s.large.IsoCopy()
	}
	return &c
}

// Encoding returns Redis's name of the form.
func (s *Set) Encoding() string { return s.form }

// SavedWords returns the number of words of Save.
func (s *Set) SavedWords() int { return 1 + s.count }

// Save writes the encoding, then the members.
func (s *Set) Save(put func(word string) bool) {
	if put(s.form) {
		s.All(put)
	}
}
