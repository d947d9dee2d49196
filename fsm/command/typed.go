package command

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// FindString returns the item of a key, or nil if the key is missing. If the value is no string, ok is false, and the
// command replies ErrWrongType.
func (c *Call) FindString(key string) (it *keyspace.Item, ok bool) {
	it = c.Find(key)
	return it, it == nil || it.IsString()
}

// FindStringOr is [Call.FindString] for a command that needs the string. If ok is false, reply is the reply of the
// command; for a missing key it is missing.
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

// Read returns the collection of a key for reading. If the key has another kind, ok is false, and the command replies
// ErrWrongType.
func Read[T keyspace.Collection](c *Call, key string) (v T, there, ok bool) {
	it := c.Find(key)
	if it == nil {
		return v, false, true
	}
	v, ok = it.Collection().(T)
	return v, ok, ok
}

// ReadOr is [Read] for a command that needs the collection. If ok is false, reply is the reply of the command; for a
// missing key it is missing.
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

// LengthOf runs HLEN and similar commands: it returns the number of elements at the first key.
func LengthOf[T keyspace.Collection](c *Call) protocol.Value {
	v, reply, ok := ReadOr[T](c, c.Args[1], Zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(v.Len()))
}

// Edit is a change of a collection. The change is in V, perhaps in place, until [Edit.Keep] stores it. A command that
// could exceed its budget calls [Call.Fits] before the first change.
type Edit[T keyspace.Collection] struct {
	V     T
	c     *Call
	db    int
	item  keyspace.Item
	there bool
}

// Open returns the collection of a key for a change. If the key is missing, fresh creates the collection. If the key
// has another kind, ok is false, and the command replies ErrWrongType. Requires: the request writes.
//
// Open clones a collection that a snapshot or a savepoint shares, so a command that may have nothing to change reads
// first. The clone is cheap. It must not be charged, since nodes capture at different times.
func Open[T keyspace.Collection](c *Call, key string, fresh func() T) (e Edit[T], ok bool) {
	return openIn(c, c.DB, key, fresh)
}

// openIn is [Open] for any database.
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

// Keep stores the changed collection, with the deadline of the key. It removes the key of an empty collection.
func (e *Edit[T]) Keep() {
	switch {
	case e.V.Len() > 0:
		e.c.put(e.db, &e.item) // emits no Stored event: see [Edit.OwnerChanged]
		e.there = true
	case e.there:
		e.c.RemoveFrom(e.db, &e.item)
		e.there = false
	}
}

// OwnerChanged emits, for audits, that a field of a hash was added or removed. The fields of a stock lock are its
// owners.
func (e *Edit[T]) OwnerChanged(kind locks.EventKind, name string) {
	if c := e.c; c.Interest&event.InLocks != 0 && IsStockLock(&e.item) {
		c.Host.LockEvent(c.stockEvent(kind, e.db, e.item.Key(), name, e.item))
	}
}

// KeepAs is [Edit.Keep] with the keyspace event of the change, and "del" if the last element was removed.
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

// StoreCollection replaces the value of a key by v. If v is empty, it removes the key.
func (c *Call) StoreCollection(key, event string, v keyspace.Collection, class event.Classes) {
	if v.Len() > 0 {
		c.Store(c.DB, keyspace.NewCollection(c.HashOf(key), key, v, Never, c.Keys.Generation))
		c.Notify(class, event, key)
		return
	}
	c.RemoveTarget(key)
}

// RemoveTarget removes the key at which a command would store its result, since the result is empty.
func (c *Call) RemoveTarget(key string) {
	if it := c.FindIn(c.DB, key); it != nil {
		c.Remove(it)
		c.Notify(event.ClassGeneric, "del", key)
	}
}
