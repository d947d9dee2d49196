package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// The work of commands on the elements of collections.
const (
	// elementWork is an element that a reply has, or that is changed.
	elementWork = 128
	// searchWork is a search in a large hash or set, or a change there. smallWork is the same in a
	// small one, beside copying it.
	searchWork = 512
	smallWork  = 128
	// passWork is an element that a search passes.
	passWork = 16
	// maxElementsWork bounds the work of one command. Beyond that the command is an error: nothing
	// else waits for a list of ten million elements.
	maxElementsWork = 1 << 28
)

var errTooMuchWork = protocol.Err("command is over its budget of work")

// charge is fits and spend for an op with much to do. The op goes on if ok, and else answers problem. The
// op has changed nothing yet.
func (c *call) charge(work int64) (problem protocol.Value, ok bool) {
	switch {
	case work > maxElementsWork:
		return errTooMuchWork, false
	case !c.fits(work):
		return errOverWork, false
	}
	c.spend(work)
	return problem, true
}

// chargeNext is charge for the n-th of many pieces of work that were not charged together.
func (c *call) chargeNext(n, work int64) (problem protocol.Value, ok bool) {
	if n > maxElementsWork/work {
		return errTooMuchWork, false
	}
	return c.charge(work)
}

// sized is a collection that may be small: one string, which a change copies.
type sized interface {
	Small() bool
	Len() int
	Bytes() int64
}

// searchesIn is the work of so many searches in a collection.
func searchesIn(v sized, searches int) int64 {
	if v.Small() {
		return int64(searches) * (smallWork + int64(v.Len()))
	}
	return int64(searches) * searchWork
}

// changesIn is the work of so many changes, to which the words add bytes.
func changesIn(v sized, changes, bytes int) int64 {
	work := searchesIn(v, changes)
	if v.Small() {
		work += int64(changes) * min(v.Bytes()+int64(bytes), maxSmallBytes) / smallShare
	}
	return work
}

// A change of a small collection copies maxSmallBytes at most, at smallShare bytes for a unit of work.
const (
	maxSmallBytes = 16 << 10
	smallShare    = 8
)

// length is how many bytes words have.
func length(words []string) (n int) {
	for _, w := range words {
		n += len(w)
	}
	return n
}

// anyTooLong reports whether one of the words is no value.
func anyTooLong(words []string) bool { return slices.ContainsFunc(words, tooLong) }

// notifyGone tells that key went, if the last element of its collection was removed.
func (c *call) notifyGone(key string, v keyspace.Collection) {
	if v.Len() == 0 {
		c.notify(classGeneric, "del", key)
	}
}

// shared charges for the members of a collection that others are searched for too: for those that are looked at
// in any case at once, and for each further one by itself, since a limit may be reached after few.
type shared struct {
	c                 *call
	ahead, seen, work int64
}

// searchShared begins a search that passes n members, or ends once so many as limit were found, at so much work
// for each.
func (c *call) searchShared(n, limit, work int64) (s shared, problem protocol.Value, ok bool) {
	s = shared{c: c, ahead: min(n, limit), work: work}
	problem, ok = c.charge(s.ahead * work)
	return s, problem, ok
}

// next charges for the next member.
func (s *shared) next() (problem protocol.Value, ok bool) {
	if s.seen++; s.seen > s.ahead {
		return s.c.chargeNext(s.seen, s.work)
	}
	return problem, true
}

// search charges for one search after another, until a search is too long.
type search struct {
	c    *call
	left int64
}

func (c *call) search() search { return search{c, maxElementsWork} }

// passes charges for an element that is compared with a word, and reports whether the search may go on.
func (s *search) passes(element, word string) bool {
	work := int64(passWork)
	if len(element) == len(word) {
		work += int64(len(word)) / 8
	}
	s.left -= work
	s.c.spend(work)
	return s.left >= 0 && s.c.fits(0)
}

// finds charges for an element that was found.
func (s *search) finds() {
	s.left -= elementWork
	s.c.spend(elementWork)
}

// ended reports whether no search was too long, and else the problem.
func (s *search) ended() (problem protocol.Value, ok bool) {
	switch {
	case s.left < 0:
		return errTooMuchWork, false
	case s.c.over:
		return errOverWork, false
	}
	return problem, true
}
