package collection

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// List is a sequence of strings with two ends.
//
// The ends are buffers, which pushes and pops change in place. Between them is a tree of runs. A short list has no
// tree.
type List struct {
	front, back buffer
	middle      *btree.BTreeG[run] // nil: without elements
	inMiddle    int
	stored      int64 // bytes of all elements in runs
	packed      int64 // bytes of all elements in Redis's listpack
	quick       bool  // the encoding is quicklist
}

// run is a piece of the middle of a list. Runs are ordered by at, the position of their first element: a run ends where
// the next begins. The first position is arbitrary.
type run struct {
	at    int64
	count int
	data  string
}

func beforeRun(a, b run) bool { return a.at < b.at }

// NewList returns an empty list.
func NewList() *List { return &List{} }

// Kind is [keyspace.KindList].
func (l *List) Kind() keyspace.Kind { return keyspace.KindList }

// Len returns the number of elements.
func (l *List) Len() int { return int(l.front.count) + l.inMiddle + int(l.back.count) }

// listBytes is the estimated memory of a list without elements.
const listBytes = 176

// Bytes returns the estimated memory of the list: the elements, and an eighth for the tree and free space.
func (l *List) Bytes() int64 { return listBytes + l.stored + l.stored/8 }

// Clone returns a list that shares the tree, and the ends until one of the lists changes them.
func (l *List) Clone() keyspace.Collection {
	l.front.shared, l.back.shared = l.front.mem != nil, l.back.mem != nil
	other := *l
	if l.middle != nil {
		other.middle = l.middle.IsoCopy()
	}
	return &other
}

// Index returns the element at index i. Requires: 0 <= i < Len.
func (l *List) Index(i int) string {
	if n := int(l.front.count); i < n {
		return l.front.index(i)
	} else if i -= n; i < l.inMiddle {
		r, k := l.find(i)
		at := seek(r.data, r.count, k)
		from, to := first(r.data[at:])
		return r.data[at+from : at+to]
	}
	return l.back.index(i - l.inMiddle)
}

func (b *buffer) index(i int) string {
	data := b.run()
	data = data[seek(data, int(b.count), i):]
	from, to := first(data)
	return string(data[from:to])
}

// find returns the run with element i of the middle, and the index of that element in it.
func (l *List) find(i int) (r run, k int) {
	lowest, _ := l.middle.Min()
	place := lowest.at + int64(i)
	l.middle.Descend(run{at: place}, func(found run) bool {
		r = found
		return false
	})
	return r, int(place - r.at)
}

// PushFront adds v before the first element.
func (l *List) PushFront(v string) {
	l.count(v)
	if !l.front.takes(len(v)) {
		l.frontToMiddle()
	}
	if elementLen(len(v)) > maxRun {
		l.addBefore(string(appendElement(nil, v)), 1)
		return
	}
	l.front.pushFront(v)
}

// PushBack adds v after the last element.
func (l *List) PushBack(v string) {
	l.count(v)
	if !l.back.takes(len(v)) {
		l.backToMiddle()
	}
	if elementLen(len(v)) > maxRun {
		l.addBehind(string(appendElement(nil, v)), 1)
		return
	}
	l.back.pushBack(v)
}

func (l *List) frontToMiddle() {
	if l.front.count > 0 {
		l.addBefore(string(l.front.run()), int(l.front.count))
		l.front = buffer{}
	}
}

func (l *List) backToMiddle() {
	if l.back.count > 0 {
		l.addBehind(string(l.back.run()), int(l.back.count))
		l.back = buffer{}
	}
}

// addBefore adds a run before the others.
func (l *List) addBefore(data string, count int) {
	l.grow()
	lowest, _ := l.middle.Min()
	l.middle.Set(run{at: lowest.at - int64(count), count: count, data: data})
	l.inMiddle += count
}

// addBehind adds a run after the others.
func (l *List) addBehind(data string, count int) {
	l.grow()
	highest, _ := l.middle.Max()
	l.middle.Set(run{at: highest.at + int64(highest.count), count: count, data: data})
	l.inMiddle += count
}

// grow creates the tree if there is none.
func (l *List) grow() {
	if l.middle == nil {
		l.middle = btree.NewBTreeGOptions(beforeRun, btree.Options{NoLocks: true})
	}
}

// PopFront removes the first element, and returns it. Requires: the list is not empty.
func (l *List) PopFront() string {
	if l.front.count == 0 && l.inMiddle > 0 {
		r, _ := l.middle.PopMin()
		l.leaves(r.count)
		if r.count == 1 {
			from, to := first(r.data)
			return l.popped(r.data[from:to])
		}
		l.front.fill(r.data, r.count)
	}
	if l.front.count > 0 {
		return l.popped(string(l.front.popFront()))
	}
	return l.popped(string(l.back.popFront()))
}

// PopBack removes the last element, and returns it. Requires: the list is not empty.
func (l *List) PopBack() string {
	if l.back.count == 0 && l.inMiddle > 0 {
		r, _ := l.middle.PopMax()
		l.leaves(r.count)
		if r.count == 1 {
			from, to := first(r.data)
			return l.popped(r.data[from:to])
		}
		l.back.fill(r.data, r.count)
	}
	if l.back.count > 0 {
		return l.popped(string(l.back.popBack()))
	}
	return l.popped(string(l.front.popBack()))
}

// leaves records that this number of elements was removed from the middle.
func (l *List) leaves(count int) {
	if l.inMiddle -= count; l.inMiddle == 0 {
		l.middle = nil
	}
}

func (l *List) popped(v string) string {
	l.discount(v)
	l.shorten()
	return v
}

// Trim keeps the elements from index from to before index to. Requires: 0 <= from <= to <= Len.
func (l *List) Trim(from, to int) {
	for range l.Len() - to {
		l.PopBack()
	}
	for range from {
		l.PopFront()
	}
}

// Ascend calls f with the elements from index i on, in order, until f returns false.
func (l *List) Ascend(i int, f func(v string) bool) {
	if n := int(l.front.count); i < n {
		if !ascend(string(l.front.run()), i, f) {
			return
		}
		i = 0
	} else {
		i -= n
	}
	if i < l.inMiddle {
		r, k := l.find(i)
		going := true
		l.middle.Ascend(run{at: r.at}, func(r run) bool {
			going = ascend(r.data, k, f)
			k = 0
			return going
		})
		if !going {
			return
		}
		i = 0
	} else {
		i -= l.inMiddle
	}
	if l.back.count > int32(i) {
		ascend(string(l.back.run()), i, f)
	}
}

// ascend calls f with the elements of a run from the k-th on, and reports whether f wants more.
func ascend(data string, k int, f func(v string) bool) bool {
	for at := skip(data, k); at < len(data); {
		from, to := first(data[at:])
		if !f(data[at+from : at+to]) {
			return false
		}
		at += to + from
	}
	return true
}

// Descend calls f with the elements from index i down, until f returns false.
func (l *List) Descend(i int, f func(v string) bool) {
	if k := i - int(l.front.count) - l.inMiddle; k >= 0 {
		if !descend(string(l.back.run()), int(l.back.count), k, f) {
			return
		}
		i -= k + 1
	}
	if k := i - int(l.front.count); k >= 0 {
		r, at := l.find(k)
		going := true
		l.middle.Descend(run{at: r.at}, func(r run) bool {
			going = descend(r.data, r.count, at, f)
			at = int(1<<31 - 1)
			return going
		})
		if !going {
			return
		}
		i = int(l.front.count) - 1
	}
	if i >= 0 {
		descend(string(l.front.run()), int(l.front.count), i, f)
	}
}

// descend calls f with the elements of a run from the k-th down, and reports whether f wants more.
func descend(data string, count, k int, f func(v string) bool) bool {
	for at := skipBack(data, count-1-min(k, count-1)); at > 0; {
		from, to := final(data[:at])
		if !f(data[from:to]) {
			return false
		}
		at = from - (at - to)
	}
	return true
}
