package collection

import (
	"slices"
	"strconv"
	"strings"
)

// The bounds of small hashes and sets: Redis's defaults of …-max-listpack-entries and …-max-listpack-value.
const (
	maxPacked     = 128
	maxPackedWord = 64
)

// packed has words, each after its length. A word has at most 255 bytes, so a length is one byte.
type packed string

// cut returns the first word and the rest. Requires: p is not empty.
func (p packed) cut() (word string, rest packed) {
	end := 1 + int(p[0])
	return string(p[1:end]), p[end:]
}

// packedSize returns the length of the packed words.
func packedSize(words ...string) (n int) {
	for _, w := range words {
		n += 1 + len(w)
	}
	return n
}

// splice returns p with words in place of p[from:to], in new memory.
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

// find searches the words 0, stride, 2*stride, … for a word. The group of the word begins at from, and the next group
// begins at to. If there is no such word, from is len(p).
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

// intBytes is the memory of an integer in a set of integers, whose slice has spare capacity.
const intBytes = 16

// parseInt parses a 64-bit integer in its canonical form.
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

// addToInts adds a member to a set of integers. It changes the form if the member is no integer, or one too many.
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

// TryInts gives the set the form for integers if all members are integers, and are few. Redis does so with the result
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
