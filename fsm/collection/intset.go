package collection

import (
	"slices"
	"strconv"
)

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
