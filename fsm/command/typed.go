package command

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// FindString returns the item of key, nil if the key is absent. ok is false if the value is not a
// string: the reply is then ErrWrongType.
func (c *Call) FindString(key string) (it *keyspace.Item, ok bool) {
	it = c.Find(key)
	return it, it == nil || it.IsString()
}

// FindStringOr is [Call.FindString] for an op that needs the string. If ok is false, reply is the op's: missing if the
// key is absent.
func (c *Call) FindStringOr(key string, missing protocol.Value) (it *keyspace.Item, reply protocol.Value, ok bool) {
	it, ok = c.FindString(key)
	switch {
	case !ok:
		return nil, ErrWrongType, false
	case it == nil:
		return nil, missing, false
	}
	return it, reply, true
}

// Read returns the collection of key, for reading. ok is false if the key is of another kind: the reply is
// then ErrWrongType.
func Read[T keyspace.Collection](c *Call, key string) (v T, there, ok bool) {
	it := c.Find(key)
	if it == nil {
		return v, false, true
	}
	v, ok = it.Collection().(T)
	return v, ok, ok
}

// ReadOr is [Read] for an op that needs the collection. If ok is false, reply is the op's: missing if the key is
// absent.
func ReadOr[T keyspace.Collection](c *Call, key string, missing protocol.Value) (v T, reply protocol.Value, ok bool) {
	v, there, ok := Read[T](c, key)
	switch {
	case !ok:
		return v, ErrWrongType, false
	case !there:
		return v, missing, false
	}
	return v, reply, true
}

// LengthOf is the op of HLEN and its like: the number of elements of the collection of the first key.
func LengthOf[T keyspace.Collection](c *Call) protocol.Value {
	v, reply, ok := ReadOr[T](c, c.Args[1], Zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(v.Len()))
}

// Edit is a change of a collection that is under way. Only V changes until [Edit.Keep], and V may change in
// place: an op that could exceed its budget asks [Call.Fits] before the first change.
type Edit[T keyspace.Collection] struct {
	V     T
	c     *Call
	db    int
	item  keyspace.Item
	there bool
}

// Open returns the collection of key, for changing. If the key is absent, fresh makes the collection.
// Requires: the request writes. If ok is false the reply is ErrWrongType.
//
// An op that may find nothing to change looks before it opens: Open clones a collection that a snapshot or
// a savepoint holds. That costs little, and must not be charged, since nodes capture at different
// times.
func Open[T keyspace.Collection](c *Call, key string, fresh func() T) (e Edit[T], ok bool) {
	return openIn(c, c.DB, key, fresh)
}

// openIn is [Open] in another database.
func openIn[T keyspace.Collection](c *Call, db int, key string, fresh func() T) (e Edit[T], ok bool) {
	e.c, e.db = c, db
	it := c.FindIn(db, key)
	if it == nil {
		e.V = fresh()
		c.Spend(int64(len(key)))
		e.item = keyspace.NewCollection(c.HashOf(key), key, e.V, Never, c.Keys.Generation)
		return e, true
	}
	if e.V, ok = it.Collection().(T); !ok {
		return e, false
	}
	e.item, e.there = *it, true
	if !it.OwnedBy(c.Keys.Generation) {
		e.V = e.V.Clone().(T)
		e.item = it.With(e.V, c.Keys.Generation)
	}
	return e, true
}

// Keep stores the changed collection, under the key's deadline. A collection that has become empty goes,
// and the key with it.
func (e *Edit[T]) Keep() {
	switch {
	case e.V.Len() > 0:
		e.c.put(e.db, &e.item) // [Edit.OwnerChanged] told of owners
		e.there = true
	case e.there:
		e.c.RemoveFrom(e.db, &e.item)
		e.there = false
	}
}

// OwnerChanged tells who audits that a field came to a hash, or went. The fields of a stock lock are its owners.
func (e *Edit[T]) OwnerChanged(kind locks.EventKind, name string) {
	if c := e.c; c.Interest&event.InLocks != 0 && IsStockLock(&e.item) {
		c.Host.LockEvent(c.stockEvent(kind, e.db, e.item.Key(), name, e.item))
	}
}

// KeepAs is [Edit.Keep] with the event of a change, and the one of a key that goes with its last element.
func (e *Edit[T]) KeepAs(class event.Classes, name string) {
	e.Keep()
	e.c.Notify(class, name, e.item.Key())
	if e.V.Len() == 0 {
		e.c.Notify(event.ClassGeneric, "del", e.item.Key())
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

// StoreCollection puts v, which the command made, in the place of whatever key has. Without elements, key
// goes.
func (c *Call) StoreCollection(key, event string, v keyspace.Collection, class event.Classes) {
	if v.Len() > 0 {
		c.Store(c.DB, keyspace.NewCollection(c.HashOf(key), key, v, Never, c.Keys.Generation))
		c.Notify(class, event, key)
		return
	}
	c.RemoveTarget(key)
}

// RemoveTarget removes key, if it is there, since a command with an empty result would store the result there.
func (c *Call) RemoveTarget(key string) {
	if it := c.FindIn(c.DB, key); it != nil {
		c.Remove(it)
		c.Notify(event.ClassGeneric, "del", key)
	}
}
