package collection

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// MaxElement bounds the length of an element, and of the value of a field. All nodes must have the same bound.
const MaxElement = 32 << 20

// Load returns the collection of the words that Save wrote. words is their number, and next returns them one by one.
// Load allocates nothing for words before they arrive.
func Load(kind keyspace.Kind, words int, next func() (string, error)) (keyspace.Collection, error) {
	if words < 2 {
		return nil, errors.New("a collection has no elements")
	}
	l := loader{words: words, next: next}
	var c keyspace.Collection
	switch kind {
	case keyspace.KindHash:
		c = l.hash()
	case keyspace.KindSet:
		c = l.set()
	case keyspace.KindList:
		c = l.list()
	case keyspace.KindSortedSet:
		c = l.sortedSet()
	default:
		return nil, fmt.Errorf("kind %d is no collection", kind)
	}
	if l.err != nil {
		return nil, fmt.Errorf("a %s: %w", kind, l.err)
	}
	return c, nil
}

// loader reads words. After an error all words are empty.
type loader struct {
	words int // the remaining words
	next  func() (string, error)
	err   error
}

func (l *loader) more() bool { return l.words > 0 && l.err == nil }

func (l *loader) word() string {
	if !l.more() {
		l.fail("a word is missing")
		return ""
	}
	l.words--
	word, err := l.next()
	if err != nil {
		l.err = err
		return ""
	}
	if len(word) > MaxElement {
		l.fail("an element is too long")
		return ""
	}
	return word
}

func (l *loader) fail(text string) {
	if l.err == nil {
		l.err = errors.New(text)
	}
}

func (l *loader) hash() *Hash {
	h := NewHash()
	form := l.word()
	switch form {
	case encodingPacked:
	case encodingTable:
		h.enlarge()
	default:
		l.fail("unknown encoding")
	}
	for l.more() {
		f := newField(l.word(), l.word())
		if h.large == nil {
			if !h.Put(f.name(), f.value()) {
				l.fail("a field comes twice")
			}
			continue
		}
		if last, some := h.large.Max(); some && !before(last, f) {
			l.fail("the fields are not in order")
		}
		h.large.Load(f)
		h.count++
		h.bytes += f.bytes()
	}
	if h.Encoding() != form {
		l.fail("the fields are too many or too long for the encoding")
	}
	return h
}

func (l *loader) set() *Set {
	form := l.word()
	s := &Set{form: form}
	switch form {
	case encodingPacked, encodingInts:
	case encodingTable:
		s.large = newTable[member]()
	default:
		l.fail("unknown encoding")
	}
	for l.more() {
		name := l.word()
		switch {
		case l.err != nil:
		case s.large == nil:
			l.addTo(s, name)
		default:
			l.appendTo(s, name)
		}
	}
	if s.form != form {
		l.fail("the members do not fit the encoding")
	}
	return s
}

func (l *loader) addTo(s *Set, name string) {
	if n, ok := parseInt(name); ok && len(s.ints) > 0 && n < s.ints[len(s.ints)-1] {
		l.fail("the members are not in order")
	}
	if !s.Add(name) {
		l.fail("a member comes twice")
	}
}

func (l *loader) appendTo(s *Set, name string) {
	m := member{strings.Clone(name), orderOf(name)}
	if last, some := s.large.Max(); some && !before(last, m) {
		l.fail("the members are not in order")
	}
	s.large.Load(m)
	s.count++
	s.bytes += m.bytes()
}
