package command

import (
	"slices"

	"github.com/holdfast/holdfast/protocol"
)

// Work is the cost of commands, in about nanoseconds of one core: the copy of a byte costs 1. It is counted and not
// timed, so that all nodes agree. ../DESIGN.md has the measurements.
const (
	KeyWork   = 64  // a key that a command looks at and skips
	ScanWork  = 160 // a key that KEYS or SCAN looks at, and may return
	endedWork = 16  // an expired item that a scan of all keys skips
	WriteWork = 512 // a key that is written or deleted, beyond the first of a request
	StepWork  = 8   // a step of a pattern
	// databaseWork is the work to replace a database. A journal may keep a KiB of it.
	databaseWork = 1 << 10
)

// ErrOverWork is the reply of a command that exceeds the budget of its request. The machine undoes the request.
var ErrOverWork = protocol.Err("script is over its budget of work in commands (--" + protocol.ScriptStepsFlag + ")")

// SpendScan charges for a key of a scan.
func (c *Call) SpendScan() { c.Spend(ScanWork) }

// Spend charges work that the price of the request does not include.
func (c *Call) Spend(work int64) { c.Work += work }

// Fits reports whether the budget of the request suffices for this work. If not, it sets OverBudget.
func (c *Call) Fits(work int64) bool {
	if c.Work+work <= c.Ceiling {
		return true
	}
	c.OverBudget = true
	return false
}

// Pays is Fits, and charges the work if the budget suffices.
func (c *Call) Pays(work int64) bool {
	if !c.Fits(work) {
		return false
	}
	c.Spend(work)
	return true
}

// Affords is Pays for a request that writes this number of keys. The price of the request includes the first key.
func (c *Call) Affords(keys int) bool {
	return keys < 2 || c.Pays(int64(keys-1)*WriteWork)
}

// Narrow lowers the ceiling to most from now on. The caller passes the result to Widen.
func (c *Call) Narrow(most int64) (outer int64) {
	outer = c.Ceiling
	c.Ceiling = min(c.Ceiling, c.Work+most)
	return outer
}

// Widen restores the ceiling from before Narrow. own reports that the work exceeded the lower ceiling. If own is false,
// OverBudget reports whether the work exceeded the outer ceiling.
func (c *Call) Widen(outer int64) (own bool) {
	own = c.OverBudget && c.Ceiling < outer
	c.OverBudget = c.OverBudget && !own
	c.Ceiling = outer
	return own
}

// The work of commands on the elements of collections.
const (
	// ElementWork is the work of an element that is returned or changed.
	ElementWork = 128
	// SearchWork is the work of a search or a change in a large hash or set. smallWork is that in a small one, without the
	// copy.
	SearchWork = 512
	smallWork  = 128
	// PassWork is the work of an element that a search skips.
	PassWork = 16
	// MaxElementsWork bounds the work of one command, so that no request waits for a list of ten million elements. A
	// command that needs more is refused.
	MaxElementsWork = 1 << 28
)

var ErrTooMuchWork = protocol.Err("command is over its budget of work")

// Charge is Pays for a command with much work, before the command changes anything. If ok is false, problem is the
// reply.
func (c *Call) Charge(work int64) (problem protocol.Value, ok bool) {
	switch {
	case work > MaxElementsWork:
		return ErrTooMuchWork, false
	case !c.Pays(work):
		return ErrOverWork, false
	}
	return problem, true
}

// chargeNext is Charge for the n-th of many pieces of work.
func (c *Call) chargeNext(n, work int64) (problem protocol.Value, ok bool) {
	if n > MaxElementsWork/work {
		return ErrTooMuchWork, false
	}
	return c.Charge(work)
}

// sized is a collection that may be small. A small collection is one string, which a change copies.
type sized interface {
	Small() bool
	Len() int
	Bytes() int64
}

// SearchesIn returns the work of this number of searches in a collection.
func SearchesIn(v sized, searches int) int64 {
	if v.Small() {
		return int64(searches) * (smallWork + int64(v.Len()))
	}
	return int64(searches) * SearchWork
}

// ChangesIn returns the work of this number of changes that add so many bytes.
func ChangesIn(v sized, changes, bytes int) int64 {
	work := SearchesIn(v, changes)
	if v.Small() {
		work += int64(changes) * min(v.Bytes()+int64(bytes), maxSmallBytes) / smallShare
	}
	return work
}

// A change of a small collection copies maxSmallBytes at most. smallShare is the number of bytes for a unit of work.
const (
	maxSmallBytes = 16 << 10
	smallShare    = 8
)

// Length returns the bytes of all words.
func Length(words []string) (n int) {
	for _, w := range words {
		n += len(w)
	}
	return n
}

// AnyTooLong reports whether one of the words is too long for a value.
func AnyTooLong(words []string) bool { return slices.ContainsFunc(words, TooLong) }

// shared charges for the members of a collection that a command looks up in other collections. It charges for the first
// limit members at once, and then for each member, since the command may stop early.
type shared struct {
	c                 *Call
	ahead, seen, work int64
}

// SearchShared begins a search that looks up at most n members at this work for each, and stops after limit matches.
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

// search charges for several searches, and stops a search that is too long.
type search struct {
	c    *Call
	left int64
}

func (c *Call) Search() search { return search{c, MaxElementsWork} }

// Passes charges for an element that is compared with a word, and reports whether the search may continue.
func (s *search) Passes(element, word string) bool {
	work := int64(PassWork)
	if len(element) == len(word) {
		work += int64(len(word)) / 8
	}
	s.left -= work
	s.c.Spend(work)
	return s.left >= 0 && s.c.Fits(0)
}

// Finds charges for a match.
func (s *search) Finds() {
	s.left -= ElementWork
	s.c.Spend(ElementWork)
}

// Ended returns the error if a search was too long.
func (s *search) Ended() (problem protocol.Value, ok bool) {
	switch {
	case s.left < 0:
		return ErrTooMuchWork, false
	case s.c.OverBudget:
		return ErrOverWork, false
	}
	return problem, true
}
