package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// findString returns the item of key, nil if the key is absent. ok is false if the value is not a
// string: the reply is then errWrongType.
func (c *call) findString(key string) (it *keyspace.Item, ok bool) {
	it = c.find(key)
	return it, it == nil || it.IsString()
}

// look returns the collection of key, for reading. ok is false if the key is of another kind: the reply is
// then errWrongType.
func look[T keyspace.Collection](c *call, key string) (v T, there, ok bool) {
	it := c.find(key)
	if it == nil {
		return v, false, true
	}
	v, ok = it.Collection().(T)
	return v, ok, ok
}

// lookOr is look for an op that needs the collection. If ok is false, reply is the op's: missing if the key is
// absent.
func lookOr[T keyspace.Collection](c *call, key string, missing protocol.Value) (v T, reply protocol.Value, ok bool) {
	v, there, ok := look[T](c, key)
	switch {
	case !ok:
		return v, errWrongType, false
	case !there:
		return v, missing, false
	}
	return v, reply, true
}

// edit is a change of a collection that is under way. Only V changes until keep, and V may change in
// place: an op that could exceed its budget asks [call.fits] before the first change.
type edit[T keyspace.Collection] struct {
	V     T
	c     *call
	db    int
	item  keyspace.Item
	there bool
}

// open returns the collection of key, for changing. If the key is absent, fresh makes the collection.
// Requires: the request writes. If ok is false the reply is errWrongType.
//
// An op that may find nothing to change looks before it opens: open clones a collection that a snapshot or
// a savepoint holds. That costs little, and must not be charged, since nodes capture at different
// times.
func open[T keyspace.Collection](c *call, key string, fresh func() T) (e edit[T], ok bool) {
	return openIn(c, c.db, key, fresh)
}

// openIn is open in another database.
func openIn[T keyspace.Collection](c *call, db int, key string, fresh func() T) (e edit[T], ok bool) {
	e.c, e.db = c, db
	it := c.findIn(db, key)
	if it == nil {
		e.V = fresh()
		c.spend(int64(len(key)))
		e.item = keyspace.NewCollection(c.hashOf(key), key, e.V, never, c.st.generation)
		return e, true
	}
	if e.V, ok = it.Collection().(T); !ok {
		return e, false
	}
	e.item, e.there = *it, true
	if !it.OwnedBy(c.st.generation) {
		e.V = e.V.Clone().(T)
		e.item = it.With(e.V, c.st.generation)
	}
	return e, true
}

// keep stores the changed collection, under the key's deadline. A collection that has become empty goes,
// and the key with it.
func (e *edit[T]) keep() {
	switch {
	case e.V.Len() > 0:
		e.c.store(e.db, e.item)
		e.there = true
	case e.there:
		e.c.removeFrom(e.db, &e.item)
		e.there = false
	}
}

// isKind reports whether word is the name of a kind, in any case.
func isKind(word string, kind keyspace.Kind) bool {
	name := kind.String()
	if len(word) != len(name) {
		return false
	}
	for i := range len(word) {
		if word[i]|0x20 != name[i] {
			return false
		}
	}
	return true
}
