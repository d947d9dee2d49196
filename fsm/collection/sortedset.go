package collection

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// SortedSet has members ordered by score, and members with the same score ordered by their bytes. A score is never NaN.
//
// A small sorted set is one string, which each change copies. A larger one has two trees, by score and by name.
type SortedSet struct {
	small   scores
	count   int
	text    int64 // bytes of all members
	byScore *btree.BTreeG[scored]
	byName  *table[named]
}

// scored is a member in the tree by score.
type scored struct {
	score  float64
	member string
}

// named is a member in the tree by name.
type named struct {
	member string
	hash   uint64
	score  float64
}

func (n named) order() uint64 { return n.hash }
func (n named) name() string  { return n.member }

func beforeScored(a, b scored) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.member < b.member
}

// encodingSkiplist is the encoding of a sorted set that is no listpack.
const encodingSkiplist = "skiplist"

// NewSortedSet returns an empty sorted set.
func NewSortedSet() *SortedSet { return &SortedSet{} }

// Kind is [keyspace.KindSortedSet].
func (z *SortedSet) Kind() keyspace.Kind { return keyspace.KindSortedSet }

// Len returns the number of members.
func (z *SortedSet) Len() int { return z.count }

func (z *SortedSet) large() bool { return z.byScore != nil }

// Small reports whether ZSCAN returns all members at once.
func (z *SortedSet) Small() bool { return !z.large() }

// The estimated memory of a sorted set without its members' bytes. A member of a larger set is in two trees.
const (
	sortedSetBytes    = 112
	smallMemberBytes  = 9
	scoredMemberBytes = 104
)

// Bytes returns the estimated memory of the sorted set.
func (z *SortedSet) Bytes() int64 {
	if z.large() {
		return sortedSetBytes + z.text + int64(z.count)*scoredMemberBytes
	}
	return sortedSetBytes + allocated(int(z.text)+z.count*smallMemberBytes)
}

// Clone returns a sorted set that shares the members.
func (z *SortedSet) Clone() keyspace.Collection {
	other := *z
	if z.large() {
		other.byScore, other.byName = z.byScore.IsoCopy(), z.byName.IsoCopy()
	}
	return &other
}

// Encoding returns the encoding in Redis.
func (z *SortedSet) Encoding() string {
	if z.large() {
		return encodingSkiplist
	}
	return encodingPacked
}

// Expect announces this number of members of at most longest bytes. If they are too many or too long, Redis makes a
// skiplist at once.
func (z *SortedSet) Expect(members, longest int) {
	if !z.large() && (members > maxPacked || longest > maxPackedWord) {
		z.enlarge()
	}
}

// enlarge creates the trees.
func (z *SortedSet) enlarge() {
	z.byScore = btree.NewBTreeGOptions(beforeScored, btree.Options{NoLocks: true})
	z.byName = newTable[named]()
	for at := 0; at < len(z.small); {
		m, next := z.small.at(at)
		z.byScore.Load(m)
		z.byName.Set(named{m.member, orderOf(m.member), m.score})
		at = next
	}
	z.small = ""
}

// Score returns the score of a member.
func (z *SortedSet) Score(member string) (score float64, ok bool) {
	if z.large() {
		n, ok := z.byName.Get(named{member: member, hash: orderOf(member)})
		return n.score, ok
	}
	from, to := z.small.find(member)
	if from == to {
		return 0, false
	}
	m, _ := z.small.at(from)
	return m.score, true
}

// Put sets the score of a member, and reports whether the member is new.
//
// A small set has no minus zero, since Redis's listpack stores zero as an integer.
func (z *SortedSet) Put(member string, score float64) (added bool) {
	before, there := z.Score(member)
	if there && math.Float64bits(before) == math.Float64bits(score) {
		return false
	}
	if !there {
		z.count++
		z.text += int64(len(member))
		z.Expect(z.count, len(member))
	}
	if !z.large() {
		z.small = z.small.with(member, score+0)
		return !there
	}
	if there {
		old, _ := z.byScore.Delete(scored{before, member})
		member = old.member
	} else {
		member = strings.Clone(member)
	}
	z.byScore.Set(scored{score, member})
	z.byName.Set(named{member, orderOf(member), score})
	return !there
}

// Remove removes a member, and reports whether there was one.
func (z *SortedSet) Remove(member string) bool {
	if !z.large() {
		from, to := z.small.find(member)
		if from == to {
			return false
		}
		z.small = z.small.splice(from, to, "")
		z.gone(len(member))
		return true
	}
	n, ok := z.byName.Delete(named{member: member, hash: orderOf(member)})
	if ok {
		z.byScore.Delete(scored{n.score, n.member})
		z.gone(len(member))
	}
	return ok
}

func (z *SortedSet) gone(bytes int) {
	z.count--
	z.text -= int64(bytes)
}

// RemoveRange removes the members from index from to before index to. Requires: 0 <= from <= to <= Len.
func (z *SortedSet) RemoveRange(from, to int) {
	if z.large() {
		for range to - from {
			m, _ := z.byScore.DeleteAt(from)
			z.byName.Delete(named{member: m.member, hash: orderOf(m.member)})
			z.gone(len(m.member))
		}
		return
	}
	begin := z.small.seek(from)
	end := begin
	for range to - from {
		m, next := z.small.at(end)
		z.gone(len(m.member))
		end = next
	}
	z.small = z.small.splice(begin, end, "")
}

// At returns the member at index i. Requires: 0 <= i < Len.
func (z *SortedSet) At(i int) (member string, score float64) {
	var m scored
	if z.large() {
		m, _ = z.byScore.GetAt(i)
	} else {
		m, _ = z.small.at(z.small.seek(i))
	}
	return m.member, m.score
}

// Rank returns the index of a member.
func (z *SortedSet) Rank(member string) (rank int, ok bool) {
	score, ok := z.Score(member)
	if !ok {
		return 0, false
	}
	return z.Search(func(m string, s float64) bool { return !beforeScored(scored{s, m}, scored{score, member}) }), true
}

// Search returns the index of the first member for which f is true, or Len. Requires: f is false for all members before
// it, and true for all after it.
func (z *SortedSet) Search(f func(member string, score float64) bool) int {
	if !z.large() {
		i := 0
		for at := 0; at < len(z.small); i++ {
			m, next := z.small.at(at)
			if f(m.member, m.score) {
				break
			}
			at = next
		}
		return i
	}
	low, high := 0, z.count
	for low < high {
		middle := int(uint(low+high) / 2)
		if m, _ := z.byScore.GetAt(middle); f(m.member, m.score) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// Ascend calls f with the members from index i on, in order, until f returns false.
func (z *SortedSet) Ascend(i int, f func(member string, score float64) bool) {
	if i >= z.count {
		return
	}
	if z.large() {
		pivot, _ := z.byScore.GetAt(i)
		z.byScore.Ascend(pivot, func(m scored) bool { return f(m.member, m.score) })
		return
	}
	for at := z.small.seek(i); at < len(z.small); {
		m, next := z.small.at(at)
		if !f(m.member, m.score) {
			return
		}
		at = next
	}
}

// Descend calls f with the members from index i down, until f returns false. Requires: i < Len.
func (z *SortedSet) Descend(i int, f func(member string, score float64) bool) {
	if i < 0 {
		return
	}
	if z.large() {
		pivot, _ := z.byScore.GetAt(i)
		z.byScore.Descend(pivot, func(m scored) bool { return f(m.member, m.score) })
		return
	}
	var places [maxPacked]int
	for k, at := 1, 0; k <= i; k++ {
		_, at = z.small.at(at)
		places[k] = at
	}
	for ; i >= 0; i-- {
		if m, _ := z.small.at(places[i]); !f(m.member, m.score) {
			return
		}
	}
}

// Scan calls f with members until f returns false. A large set has them in the order of their hashes, and Scan begins
// at the hash from. Of a small set Scan passes all members, in the set's order.
func (z *SortedSet) Scan(from uint64, f func(hash uint64, member string, score float64) bool) {
	if !z.large() {
		z.Ascend(0, func(member string, score float64) bool { return f(0, member, score) })
		return
	}
	z.byName.Ascend(named{hash: from}, func(n named) bool { return f(n.hash, n.member, n.score) })
}

// SavedWords returns the number of words of Save.
func (z *SortedSet) SavedWords() int { return 1 + 2*z.count }

// Save calls put with the encoding, and with the members and the bits of their scores.
func (z *SortedSet) Save(put func(word string) bool) {
	if !put(z.Encoding()) {
		return
	}
	var bits [8]byte
	z.Ascend(0, func(member string, score float64) bool {
		binary.BigEndian.PutUint64(bits[:], math.Float64bits(score))
		return put(member) && put(string(bits[:]))
	})
}

// sortedSet returns the sorted set of the words of Save.
func (l *loader) sortedSet() *SortedSet {
	z := NewSortedSet()
	encoding := l.word()
	if encoding == encodingSkiplist {
		z.enlarge()
	}
	last := scored{score: math.Inf(-1)}
	for l.more() {
		m := scored{member: l.word()}
		if bits := l.word(); len(bits) == 8 {
			m.score = math.Float64frombits(binary.BigEndian.Uint64([]byte(bits)))
		} else {
			l.fail("a score is not 8 bytes")
		}
		if math.IsNaN(m.score) || z.Small() && m.score == 0 && math.Signbit(m.score) {
			l.fail("a score is no number, or minus zero")
		}
		if z.count > 0 && !beforeScored(last, m) {
			l.fail("the members are not in order")
		}
		if l.err == nil && !z.Put(m.member, m.score) {
			l.fail("a member comes twice")
		}
		last = m
	}
	if z.Encoding() != encoding {
		l.fail("the members are too many or too long for the encoding")
	}
	return z
}
