package collection

import (
	"encoding/binary"
	"math"
	"strings"
)

// scores is a small sorted set: for each member its length in a byte, the member, and the bits of its score in 8 bytes.
type scores string

// at returns the member at a position, and the position of the next.
func (s scores) at(place int) (m scored, next int) {
	n := int(s[place])
	next = place + 1 + n + 8
	b := s[next-8 : next]
	bits := uint64(b[7]) | uint64(b[6])<<8 | uint64(b[5])<<16 | uint64(b[4])<<24 |
		uint64(b[3])<<32 | uint64(b[2])<<40 | uint64(b[1])<<48 | uint64(b[0])<<56
	return scored{math.Float64frombits(bits), string(s[place+1 : place+1+n])}, next
}

// seek returns the position of the member at index i.
func (s scores) seek(i int) (place int) {
	for range i {
		place += 1 + int(s[place]) + 8
	}
	return place
}

// find returns the beginning and the end of a member. They are equal if there is no such member.
func (s scores) find(member string) (from, to int) {
	for from < len(s) {
		n := int(s[from])
		to = from + 1 + n + 8
		if n == len(member) && string(s[from+1:from+1+n]) == member {
			return from, to
		}
		from = to
	}
	return from, from
}

// with returns s with another member, in the order of scores.
func (s scores) with(member string, score float64) scores {
	from, to := s.find(member)
	if from < to {
		s = s.splice(from, to, "")
	}
	place := 0
	for place < len(s) {
		m, next := s.at(place)
		if beforeScored(scored{score, member}, m) {
			break
		}
		place = next
	}
	var entry strings.Builder
	entry.Grow(1 + len(member) + 8)
	entry.WriteByte(byte(len(member)))
	entry.WriteString(member)
	var bits [8]byte
	binary.BigEndian.PutUint64(bits[:], math.Float64bits(score))
	entry.Write(bits[:])
	return s.splice(place, place, entry.String())
}

// splice returns s with data in place of s[from:to], in new memory.
func (s scores) splice(from, to int, data string) scores {
	var b strings.Builder
	b.Grow(len(s) - (to - from) + len(data))
	b.WriteString(string(s[:from]))
	b.WriteString(data)
	b.WriteString(string(s[to:]))
	return scores(b.String())
}
