package command

import (
	"slices"

	"github.com/holdfast/holdfast/protocol"
)

// Work is the cost of commands, in about nanoseconds of one core: a byte copied is 1. Work is counted
// and never timed, so that all nodes count alike. ../DESIGN.md has the measurements.
const (
	KeyWork   = 64  // something that is looked at and passed
	ScanWork  = 160 // a key that KEYS or SCAN looks at, and may show
	endedWork = 16  // an ended item that waits for the sweep, and that a look at all keys passes
	WriteWork = 512 // a key that is written or deleted, after a request's first
	StepWork  = 8   // a step of a pattern
	// databaseWork is a database that is replaced: a journal may keep a KiB of it.
	databaseWork = 1 << 10
)

// ErrOverWork is the reply of a command that is over the budget of its request: nothing of the request is kept.
var ErrOverWork = protocol.Err("script is over its budget of work in commands (--" + protocol.ScriptStepsFlag + ")")

// SpendScan charges for a key that is scanned.
func (c *Call) SpendScan() { c.Spend(ScanWork) }

// Spend notes work that the price of a request does not contain.
func (c *Call) Spend(work int64) { c.Work += work }

// Fits reports whether the request may do this much more work. If not, the request is over.
func (c *Call) Fits(work int64) bool {
	if c.Work+work <= c.Ceiling {
		return true
	}
	c.OverBudget = true
	return false
}

// Pays spends work if the request may do this much more work, and reports whether it may. If not, the request is over.
func (c *Call) Pays(work int64) bool {
	if !c.Fits(work) {
		return false
	}
	c.Spend(work)
	return true
}

// Affords is Pays for a request that writes so many keys. The price of the request contains the first key.
func (c *Call) Affords(keys int) bool {
	return keys < 2 || c.Pays(int64(keys-1)*WriteWork)
}

// Narrow lowers the ceiling: no more work than most is allowed from here on. The result is for widen.
func (c *Call) Narrow(most int64) (outer int64) {
	outer = c.Ceiling
	c.Ceiling = min(c.Ceiling, c.Work+most)
	return outer
}

// Widen restores the ceiling from before narrow. own reports that the work was more than most. If own is false,
// c.OverBudget says whether the work was more than the outer ceiling.
func (c *Call) Widen(outer int64) (own bool) {
	own = c.OverBudget && c.Ceiling < outer
	c.OverBudget = c.OverBudget && !own
	c.Ceiling = outer
	return own
}

// The work of commands on the elements of collections.
const (
	// ElementWork is an element that a reply has, or that is changed.
	ElementWork = 128
	// SearchWork is a search in a large hash or set, or a change there. smallWork is the same in a
	// small one, beside copying it.
	SearchWork = 512
	smallWork  = 128
	// PassWork is an element that a search passes.
	PassWork = 16
	// MaxElementsWork bounds the work of one command. Beyond that the command is an error: nothing
	// else waits for a list of ten million elements.
	MaxElementsWork = 1 << 28
)

var ErrTooMuchWork = protocol.Err("command is over its budget of work")

// Charge is Pays for an op with much to do, before the op changes anything. If ok is false, the reply of the op is
// problem.
func (c *Call) Charge(work int64) (problem protocol.Value, ok bool) {
	switch {
	case work > MaxElementsWork:
		return ErrTooMuchWork, false
	case !c.Pays(work):
		return ErrOverWork, false
	}
	return problem, true
}

// chargeNext is charge for the n-th of many pieces of work that were not charged together.
func (c *Call) chargeNext(n, work int64) (problem protocol.Value, ok bool) {
	if n > MaxElementsWork/work {
		return ErrTooMuchWork, false
	}
	return c.Charge(work)
}

// sized is a collection that may be small: one string, which a change copies.
type sized interface {
	Small() bool
	Len() int
	Bytes() int64
}

// SearchesIn is the work of so many searches in a collection.
func SearchesIn(v sized, searches int) int64 {
	if v.Small() {
		return int64(searches) * (smallWork + int64(v.Len()))
	}
	return int64(searches) * SearchWork
}

// ChangesIn is the work of so many changes, to which the words add bytes.
func ChangesIn(v sized, changes, bytes int) int64 {
	work := SearchesIn(v, changes)
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

// Length is how many bytes words have.
func Length(words []string) (n int) {
	for _, w := range words {
		n += len(w)
	}
	return n
}

// AnyTooLong reports whether one of the words is no value.
func AnyTooLong(words []string) bool { return slices.ContainsFunc(words, TooLong) }

// shared charges for the members of a collection that others are searched for too: for those that are looked at
// in any case at once, and for each further one by itself, since a limit may be reached after few.
type shared struct {
	c                 *Call
	ahead, seen, work int64
}

// SearchShared begins a search that passes n members, or ends once so many as limit were found, at so much work
// for each.
func (c *Call) SearchShared(n, limit, work int64) (s shared, problem protocol.Value, ok bool) {
	s = shared{c: c, ahead: min(n, limit), work: work}
	problem, ok = c.Charge(s.ahead * work)
	return s, problem, ok
}

// Next charges for the next member.
func (s *shared) Next() (problem protocol.Value, ok bool) {
	if s.seen++; s.seen > s.ahead {
		return s.c.chargeNext(s.seen, s.work)
	}
	return problem, true
}

// search charges for one search after another, until a search is too long.
type search struct {
	c    *Call
	left int64
}

func (c *Call) Search() search { return search{c, MaxElementsWork} }

// Passes charges for an element that is compared with a word, and reports whether the search may go on.
func (s *search) Passes(element, word string) bool {
	work := int64(PassWork)
	if len(element) == len(word) {
		work += int64(len(word)) / 8
	}
	s.left -= work
	s.c.Spend(work)
	return s.left >= 0 && s.c.Fits(0)
}

// Finds charges for an element that was found.
func (s *search) Finds() {
	s.left -= ElementWork
	s.c.Spend(ElementWork)
}

// Ended reports whether no search was too long, and else the problem.
func (s *search) Ended() (problem protocol.Value, ok bool) {
	switch {
	case s.left < 0:
		return ErrTooMuchWork, false
	case s.c.OverBudget:
		return ErrOverWork, false
	}
	return problem, true
}
