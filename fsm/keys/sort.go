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

const (
	// compareWork is the work of a comparison of two elements, without the work for their bytes.
	compareWork = 32
	// lookupWork is the work of a lookup by BY or GET.
	lookupWork = 512
)

var errSortScore = protocol.Err("One or more scores can't be converted into double")

// sorting is the state of a SORT command.
type sorting struct {
	c        *command.Call
	by       string
	gets     []string
	byKeys   bool // the pattern in by has a star, so BY looks up a key for each element
	unsorted bool // a pattern of BY has no star, so the elements keep their order
	alpha    bool
	desc     bool
	from     int64 // the offset of LIMIT
	count    int64 // the count of LIMIT, or -1
	stores   bool
	target   string
	items    []sortItem
	total    int64 // the work so far
}

// sortItem is an element and its sort key: weight, or the number in it. hasWeight is false if BY has found no value.
type sortItem struct {
	element   string
	weight    string
	hasWeight bool
	score     float64
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

// charges is [command.Call.Charge] for a part of the work. It also limits the sum of all parts.
func (s *sorting) charges(work int64) (problem protocol.Value, ok bool) {
	if s.total += work; s.total > command.MaxElementsWork {
		return command.ErrTooMuchWork, false
	}
	return s.c.Charge(work)
}

// load loads the elements of a key. If they are not sorted, it loads only those within LIMIT.
func (s *sorting) load(key string) (problem protocol.Value, ok bool) {
	it := s.c.Find(key)
	if it == nil {
		return problem, true
	}
	var visit func(from int, f func(element string) bool)
	n := 0
	backwards := s.desc && s.unsorted // sets ignore it, since they have no order
	switch v := it.Collection().(type) {
	case *collection.List:
		n, visit = v.Len(), v.Ascend
		if backwards {
			visit = func(from int, f func(string) bool) { v.Descend(n-1-from, f) }
		}
	case *collection.Set:
		n, visit = v.Len(), v.AscendAt
		if s.unsorted && (s.stores || s.c.Script != nil) {
			// As in Redis, a script and a stored list must not depend on the order of a set.
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

// bounds returns the range within LIMIT of n elements: from inclusive, to exclusive.
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

// weigh finds the sort key of each element, and charges for the sorting.
func (s *sorting) weigh() (problem protocol.Value, ok bool) {
	var bytes int64
	invalid := false
	for i := range s.items {
		it := &s.items[i]
		it.weight, it.hasWeight = it.element, true
		if s.byKeys {
			if problem, ok = s.charges(lookupWork + int64(len(s.by)+len(it.element))); !ok {
				return problem, false
			}
			it.weight, it.hasWeight = valueOf(s.c, s.by, it.element)
		}
		bytes += int64(len(it.weight) + len(it.element))
		if !s.alpha && it.hasWeight {
			it.score, ok = sortScore(it.weight)
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

// sortScore parses a decimal number without blanks, as Redis 8 does. A number that is too large is infinite, and an
// empty text is 0.
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
	score, _ = strconv.ParseFloat(text, 64) // the only possible error is that the number is too large
	return score, true
}

func (s *sorting) compare(a, b sortItem) int {
	order := 0
	switch {
	case !s.alpha:
		if order = cmp.Compare(a.score, b.score); order == 0 {
			order = strings.Compare(a.element, b.element)
		}
	case a.hasWeight && b.hasWeight:
		order = strings.Compare(a.weight, b.weight)
	case a.hasWeight:
		order = 1
	case b.hasWeight:
		order = -1
	}
	if s.desc {
		return -order
	}
	return order
}

// output returns the elements, or for each element the values of GET. A missing value is null, or an empty string in a
// stored list.
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
			found, ok := valueOf(s.c, pattern, it.element)
			switch {
			case ok:
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

// valueOf returns the value of a pattern of BY or GET for an element. The element replaces
// the star in "weight_*" and in "object_*->field". The pattern "#" is the element itself. found reports whether the
// value exists.
func valueOf(c *command.Call, pattern, element string) (value string, found bool) {
	if pattern == "#" {
		return element, true
	}
	prefix, suffix, ok := strings.Cut(pattern, "*")
	if !ok {
		return "", false
	}
	suffix, field, _ := strings.Cut(suffix, "->")
	if field == "" { // "->" at the end belongs to the key
		suffix = pattern[len(prefix)+1:]
	}
	it := c.Find(prefix + element + suffix)
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
