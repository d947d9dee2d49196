package keys

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// The work of SORT: a comparison, beside the bytes, and a key that BY or GET looks up.
const (
	compareWork = 32
	lookupWork  = 512
)

var errSortScore = protocol.Err("One or more scores can't be converted into double")

// sorting is a SORT under way.
type sorting struct {
	c      *command.Call
	by     string
	gets   []string
	byKeys bool // by names keys
	// unsorted: by names no keys, so the elements stay in their order.
	unsorted bool
	alpha    bool
	desc     bool
	from     int64 // LIMIT
	count    int64
	stores   bool
	target   string
	items    []sortItem
	total    int64 // work so far
}

// sortItem is an element with what the element is sorted by.
type sortItem struct {
	element string
	text    string
	there   bool // text is there
	score   float64
}

func sort(c *command.Call, readOnly bool) protocol.Value {
	s := sorting{c: c, count: -1}
	if problem, ok := s.parse(c.Args[2:], readOnly); !ok {
		return problem
	}
	if problem, ok := s.load(c.Args[1]); !ok {
		return problem
	}
	if !s.unsorted {
		if problem, ok := s.weigh(); !ok {
			return problem
		}
		slices.SortStableFunc(s.items, s.compare)
		s.limit()
	}
	elems, problem, ok := s.output()
	switch {
	case !ok:
		return problem
	case s.stores:
		return s.store(elems)
	}
	return protocol.Array(elems...)
}

func (s *sorting) parse(words []string, readOnly bool) (problem protocol.Value, ok bool) {
	for len(words) > 0 {
		used := 1
		switch left := len(words) - 1; {
		case command.IsWord(words[0], "ASC"):
			s.desc = false
		case command.IsWord(words[0], "DESC"):
			s.desc = true
		case command.IsWord(words[0], "ALPHA"):
			s.alpha = true
		case command.IsWord(words[0], "LIMIT") && left >= 2:
			if s.from, s.count, ok = command.ParseIndexes(words[1], words[2]); !ok {
				return command.ErrNotInteger, false
			}
			used = 3
		case !readOnly && command.IsWord(words[0], "STORE") && left >= 1:
			s.target, s.stores = words[1], true
			used = 2
		case command.IsWord(words[0], "BY") && left >= 1:
			s.by = words[1]
			s.byKeys = strings.Contains(s.by, "*")
			s.unsorted = s.unsorted || !s.byKeys
			used = 2
		case command.IsWord(words[0], "GET") && left >= 1:
			s.gets = append(s.gets, words[1])
			used = 2
		default:
			return command.ErrSyntax, false
		}
		words = words[used:]
	}
	return problem, true
}

// charges is [command.Call.Charge] for a part of the work. The parts are bounded together.
func (s *sorting) charges(work int64) (problem protocol.Value, ok bool) {
	if s.total += work; s.total > command.MaxElementsWork {
		return command.ErrTooMuchWork, false
	}
	return s.c.Charge(work)
}

// load loads the elements of key: all of them, or, if they are not sorted, those that the limit leaves.
func (s *sorting) load(key string) (problem protocol.Value, ok bool) {
	it := s.c.Find(key)
	if it == nil {
		return problem, true
	}
	var visit func(from int, f func(element string) bool)
	n := 0
	backwards := s.desc && s.unsorted // which is no order of a set
	switch v := it.Collection().(type) {
	case *collection.List:
		n, visit = v.Len(), v.Ascend
		if backwards {
			visit = func(from int, f func(string) bool) { v.Descend(n-1-from, f) }
		}
	case *collection.Set:
		n, visit = v.Len(), v.AscendAt
		if s.unsorted && (s.stores || s.c.Script != nil) {
			// Redis sorts, so that a script and a list do not depend on the order of a set.
			s.unsorted, s.alpha, s.byKeys = false, true, false
		}
	case *collection.SortedSet:
		n, visit = v.Len(), func(from int, f func(string) bool) {
			v.Ascend(from, func(member string, _ float64) bool { return f(member) })
		}
		if backwards {
			visit = func(from int, f func(string) bool) {
				v.Descend(n-1-from, func(member string, _ float64) bool { return f(member) })
			}
		}
	default:
		return command.ErrWrongType, false
	}
	from, to := 0, n
	if s.unsorted {
		from, to = s.bounds(n)
	}
	if problem, ok = s.charges(int64(to-from) * command.ElementWork); !ok || from == to {
		return problem, ok
	}
	s.items = make([]sortItem, 0, to-from)
	visit(from, func(element string) bool {
		s.items = append(s.items, sortItem{element: element})
		return len(s.items) < to-from
	})
	return problem, true
}

// bounds are the places among n elements that LIMIT leaves: from, and before to.
func (s *sorting) bounds(n int) (from, to int) {
	from = int(min(max(s.from, 0), int64(n)))
	if s.count < 0 {
		return from, n
	}
	return from, from + int(min(s.count, int64(n-from)))
}

func (s *sorting) limit() {
	from, to := s.bounds(len(s.items))
	s.items = s.items[from:to]
}

// weigh finds what each element is sorted by, and charges for the sorting.
func (s *sorting) weigh() (problem protocol.Value, ok bool) {
	var bytes int64
	invalid := false
	for i := range s.items {
		it := &s.items[i]
		it.text, it.there = it.element, true
		if s.byKeys {
			if problem, ok = s.charges(lookupWork + int64(len(s.by)+len(it.element))); !ok {
				return problem, false
			}
			it.text, it.there = valueOf(s.c, s.by, it.element)
		}
		bytes += int64(len(it.text) + len(it.element))
		if !s.alpha && it.there {
			it.score, ok = sortScore(it.text)
			invalid = invalid || !ok
		}
	}
	rounds := int64(bits.Len(uint(len(s.items))))
	if problem, ok = s.charges(rounds * (int64(len(s.items))*compareWork + bytes/8)); !ok {
		return problem, false
	}
	if invalid {
		return errSortScore, false
	}
	return problem, true
}

// sortScore reads a number as Redis 8 does: decimal, without a blank. A number that is too large is infinite,
// and no text at all is 0.
func sortScore(text string) (score float64, ok bool) {
	if text == "" {
		return 0, true
	}
	digits := text
	if text[0] == '+' || text[0] == '-' {
		digits = text[1:]
	}
	if !command.IsWord(digits, "INF") && !command.IsWord(digits, "INFINITY") {
		digits = strings.ToLower(digits[:min(len(digits), command.MaxFloatWord+1)])
		if _, _, ok = command.SplitFloat(digits); !ok || len(digits) > command.MaxFloatWord || strings.Contains(digits, "x") {
			return 0, false
		}
	}
	score, _ = strconv.ParseFloat(text, 64) // the error is for a number that is too large
	return score, true
}

func (s *sorting) compare(a, b sortItem) int {
	order := 0
	switch {
	case !s.alpha:
		if order = cmp.Compare(a.score, b.score); order == 0 {
			order = strings.Compare(a.element, b.element)
		}
	case a.there && b.there:
		order = strings.Compare(a.text, b.text)
	case a.there:
		order = 1
	case b.there:
		order = -1
	}
	if s.desc {
		return -order
	}
	return order
}

// output is the elements, or what GET finds for each. A stored list has an empty string where GET finds
// nothing.
func (s *sorting) output() (elems []protocol.Value, problem protocol.Value, ok bool) {
	if len(s.gets) == 0 {
		for _, it := range s.items {
			elems = append(elems, protocol.Bulk(it.element))
		}
		return elems, problem, true
	}
	for _, it := range s.items {
		for _, pattern := range s.gets {
			if problem, ok = s.charges(lookupWork + int64(len(pattern)+len(it.element))); !ok {
				return nil, problem, false
			}
			found, there := valueOf(s.c, pattern, it.element)
			switch {
			case there:
				elems = append(elems, protocol.Bulk(found))
			case s.stores:
				elems = append(elems, protocol.Bulk(""))
			default:
				elems = append(elems, protocol.Null)
			}
		}
	}
	return elems, problem, true
}

func (s *sorting) store(elems []protocol.Value) protocol.Value {
	var bytes int64
	for i := range elems {
		bytes += int64(len(elems[i].Str))
	}
	if problem, ok := s.charges(int64(len(elems))*command.ElementWork + bytes); !ok {
		return problem
	}
	l := collection.NewList()
	for i := range elems {
		l.PushBack(elems[i].Str)
	}
	s.c.StoreCollection(s.target, "sortstore", l, event.ClassList)
	return protocol.Integer(int64(len(elems)))
}

// valueOf is the string that BY or GET means by a pattern for an element: "#" is the element, and in
// "weight_*" and "object_*->field" the element takes the place of the star.
func valueOf(c *command.Call, pattern, element string) (value string, there bool) {
	if pattern == "#" {
		return element, true
	}
	before, behind, ok := strings.Cut(pattern, "*")
	if !ok {
		return "", false
	}
	behind, field, _ := strings.Cut(behind, "->")
	if field == "" { // "->" at the end belongs to the key
		behind = pattern[len(before)+1:]
	}
	it := c.Find(before + element + behind)
	switch {
	case it == nil:
		return "", false
	case field == "" && it.IsString():
		return it.Value(), true
	case field == "":
		return "", false
	}
	h, ok := it.Collection().(*collection.Hash)
	if !ok {
		return "", false
	}
	return h.Get(field)
}
