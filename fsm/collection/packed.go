package collection

import (
	"slices"
	"strconv"
	"strings"
)

// The limits of small hashes and sets: Redis's defaults of …-max-listpack-entries and
// …-max-listpack-value.
const (
	maxPacked     = 128
	maxPackedWord = 64
)

// packed is words, each behind its length. A word has at most 255 bytes, so a length is one byte.
type packed string

// cut splits off the first word. Requires: p is not empty.
func (p packed) cut() (word string, rest packed) {
	end := 1 + int(p[0])
	return string(p[1:end]), p[end:]
}

// packedSize is the length of words that are packed.
func packedSize(words ...string) (n int) {
	for _, w := range words {
		n += 1 + len(w)
	}
	return n
}

// splice returns p with words in the place of p[from:to], in separate memory.
func (p packed) splice(from, to int, words ...string) packed {
	var b strings.Builder
	b.Grow(len(p) - (to - from) + packedSize(words...))
	b.WriteString(string(p[:from]))
	for _, w := range words {
		b.WriteByte(byte(len(w)))
		b.WriteString(w)
	}
	b.WriteString(string(p[to:]))
	return packed(b.String())
}

// find looks for a word among the words 0, stride, 2*stride, …: from is where its group begins, and to
// where the next group begins. from is len(p) if the word is not there.
func (p packed) find(word string, stride int) (from, to int) {
	for from < len(p) {
		to = from
		for range stride {
			to += 1 + int(p[to])
		}
		if int(p[from]) == len(word) && string(p[from+1:from+1+len(word)]) == word {
			return from, to
		}
		from = to
	}
	return from, from
}

// maxInts is Redis's default of set-max-intset-entries.
const maxInts = 512

// intBytes is an integer in a set of integers, whose slice grows ahead.
const intBytes = 16

// parseInt reads a 64 bit integer in its one spelling.
func parseInt(s string) (n int64, ok bool) {
	if s == "" || len(s) > 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, false
	}
	var b [20]byte
	return n, string(strconv.AppendInt(b[:0], n, 10)) == s
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// addToInts adds a member to a set of integers, in another form if the member is no integer or is one
// too many.
func (s *Set) addToInts(name string) bool {
	n, ok := parseInt(name)
	if !ok {
		if s.count < maxPacked && len(name) <= maxPackedWord {
			s.rebuild(&Set{form: encodingPacked})
		} else {
			s.enlarge()
		}
		return s.Add(name)
	}
	place, there := slices.BinarySearch(s.ints, n)
	if there {
		return false
	}
	s.ints = slices.Insert(s.ints, place, n)
	if s.count++; s.count > maxInts {
		s.enlarge()
	}
	return true
}

func (s *Set) removeFromInts(name string) bool {
	n, ok := parseInt(name)
	if !ok {
		return false
	}
	place, there := slices.BinarySearch(s.ints, n)
	if !there {
		return false
	}
	s.ints = slices.Delete(s.ints, place, place+1)
	s.count--
	return true
}

// TryInts makes the set one of integers if all members are, and are few: Redis does so with the result
// of SINTERSTORE.
func (s *Set) TryInts() {
	if s.form == encodingInts || s.count > maxInts {
		return
	}
	all := true
	s.All(func(name string) bool {
		_, all = parseInt(name)
		return all
	})
	if all {
		s.rebuild(NewIntSet())
	}
}
