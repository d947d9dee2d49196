// Package set has the commands for sets.
package set

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// Ops has the commands for sets.
var Ops = map[string]command.Op{
	"sadd":        saddOp,
	"scard":       command.LengthOf[*collection.Set],
	"sdiff":       command.With(combine, subtract),
	"sdiffstore":  command.With(combineAndStore, subtract),
	"sinter":      command.With(combine, intersect),
	"sintercard":  sintercardOp,
	"sinterstore": command.With(combineAndStore, intersect),
	"sismember":   sismemberOp,
	"smembers":    smembersOp,
	"smismember":  smismemberOp,
	"smove":       smoveOp,
	"spop":        spopOp,
	"srandmember": srandmemberOp,
	"srem":        sremOp,
	"sscan":       sscanOp,
	"sunion":      command.With(combine, unite),
	"sunionstore": command.With(combineAndStore, unite),
}

func readSet(c *command.Call) (s *collection.Set, there, ok bool) {
	return command.Read[*collection.Set](c, c.Args[1])
}

func theSet(c *command.Call, missing protocol.Value) (s *collection.Set, reply protocol.Value, ok bool) {
	return command.ReadOr[*collection.Set](c, c.Args[1], missing)
}

func sismemberOp(c *command.Call) protocol.Value {
	s, there, ok := readSet(c)
	if !ok {
		return command.ErrWrongType
	}
	return command.Boolean(there && s.Has(c.Args[2]))
}

func smismemberOp(c *command.Call) protocol.Value {
	s, there, ok := readSet(c)
	if !ok {
		return command.ErrWrongType
	}
	names := c.Args[2:]
	if there {
		if problem, ok := c.Charge(command.SearchesIn(s, len(names))); !ok {
			return problem
		}
	}
	elems := make([]protocol.Value, len(names))
	for i, name := range names {
		elems[i] = command.Boolean(there && s.Has(name))
	}
	return protocol.Array(elems...)
}

func smembersOp(c *command.Call) protocol.Value {
	s, reply, ok := theSet(c, protocol.Set())
	if !ok {
		return reply
	}
	return membersOf(c, s)
}

// membersOf returns a set as a reply.
func membersOf(c *command.Call, s *collection.Set) protocol.Value {
	if problem, ok := c.Charge(int64(s.Len()) * command.ElementWork); !ok {
		return problem
	}
	elems := make([]protocol.Value, 0, s.Len())
	s.All(func(name string) bool {
		elems = append(elems, protocol.Bulk(name))
		return true
	})
	return protocol.Set(elems...)
}

func srandmemberOp(c *command.Call) protocol.Value {
	if len(c.Args) > 3 {
		return command.ErrSyntax
	}
	var count int64
	if len(c.Args) == 3 {
		var problem protocol.Value
		var ok bool
		if count, problem, ok = command.DrawCount(c.Args[2]); !ok {
			return problem
		}
	}
	s, there, ok := readSet(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there && len(c.Args) == 2:
		return protocol.Null
	case !there:
		return protocol.Array()
	case len(c.Args) == 2:
		return protocol.Bulk(s.At(c.Draw(s.Len())))
	}
	if problem, ok := c.ChargeDrawn(count, s, 1); !ok {
		return problem
	}
	var elems []protocol.Value
	for _, place := range c.Drawn(count, s.Len()) {
		elems = append(elems, protocol.Bulk(s.At(place)))
	}
	return protocol.Array(elems...)
}

func sscanOp(c *command.Call) protocol.Value {
	return command.ScanElements(c, func(v *collection.Set, cursor uint64, s *command.ElementScan) {
		if from, ok := command.ScanFrom(cursor); ok {
			v.Ascend(from, func(order uint64, name string) bool { return s.Visit(order, name, "") })
		}
	})
}

func saddOp(c *command.Call) protocol.Value {
	key, names := c.Args[1], c.Args[2:]
	if command.AnyTooLong(names) {
		return command.ErrTooLong
	}
	s, there, ok := readSet(c)
	if !ok {
		return command.ErrWrongType
	}
	fresh := func() *collection.Set { return collection.NewSet(names[0], len(names)) }
	if !there {
		s = fresh()
	}
	if problem, ok := c.Charge(command.ChangesIn(s, len(names), command.Length(names))); !ok {
		return problem
	}
	if there && !slices.ContainsFunc(names, func(name string) bool { return !s.Has(name) }) {
		return command.Zero
	}
	e, _ := command.Open(c, key, fresh)
	e.V.Expect(len(names))
	var added int64
	for _, name := range names {
		if e.V.Add(name) {
			added++
		}
	}
	e.KeepAs(event.ClassSet, "sadd")
	return protocol.Integer(added)
}

func sremOp(c *command.Call) protocol.Value {
	names := c.Args[2:]
	s, reply, ok := theSet(c, command.Zero)
	if !ok {
		return reply
	}
	if problem, ok := c.Charge(command.ChangesIn(s, len(names), 0)); !ok {
		return problem
	}
	if !slices.ContainsFunc(names, s.Has) {
		return command.Zero
	}
	return protocol.Integer(removeMembers(c, c.Args[1], "srem", names))
}

// removeMembers removes members from the set of a key, and the key if no member is left.
func removeMembers(c *command.Call, key, name string, names []string) (n int64) {
	e, _ := command.Open(c, key, collection.NewIntSet)
	for _, name := range names {
		if e.V.Remove(name) {
			n++
		}
	}
	e.KeepAs(event.ClassSet, name)
	return n
}

func smoveOp(c *command.Call) protocol.Value {
	from, to, name := c.Args[1], c.Args[2], c.Args[3]
	source, there, ok := command.Read[*collection.Set](c, from)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there:
		return command.Zero
	}
	target, known, ok := command.Read[*collection.Set](c, to)
	fresh := func() *collection.Set { return collection.NewSet(name, 1) }
	switch {
	case !ok:
		return command.ErrWrongType
	case !known:
		target = fresh()
	}
	work := command.ChangesIn(source, 1, 0) + command.ChangesIn(target, 1, len(name)) + command.WriteWork
	if problem, ok := c.Charge(work); !ok {
		return problem
	}
	if from == to || !source.Has(name) {
		return command.Boolean(source.Has(name))
	}
	removeMembers(c, from, "srem", []string{name})
	if !target.Has(name) {
		e, _ := command.Open(c, to, fresh)
		e.V.Add(name)
		e.KeepAs(event.ClassSet, "sadd")
	}
	return command.One
}

func spopOp(c *command.Call) protocol.Value {
	if len(c.Args) > 3 {
		return command.ErrSyntax
	}
	count, counted, ok := c.PopCount()
	if !ok {
		return command.ErrNotPositive
	}
	s, there, ok := readSet(c)
	switch {
	case !ok:
		return command.ErrWrongType
	case !there && !counted:
		return protocol.Null
	case !there, count == 0:
		return protocol.Set()
	}
	n := int(min(count, int64(s.Len())))
	if problem, ok := c.Charge(int64(n)*command.ElementWork + command.SearchesIn(s, n) + command.ChangesIn(s, n, 0)); !ok {
		return problem
	}
	return popMembers(c, s, n, !counted)
}

// popMembers removes n random members from the set of the command.
func popMembers(c *command.Call, s *collection.Set, n int, single bool) protocol.Value {
	names := make([]string, n)
	for i, place := range c.DrawDistinct(n, s.Len()) {
		names[i] = s.At(place)
	}
	if n == s.Len() {
		c.Remove(c.Find(c.Args[1]))
		c.Notify(event.ClassSet, "spop", c.Args[1])
		c.Notify(event.ClassGeneric, "del", c.Args[1])
	} else {
		removeMembers(c, c.Args[1], "spop", names)
	}
	if single {
		return protocol.Bulk(names[0])
	}
	elems := make([]protocol.Value, n)
	for i, name := range names {
		elems[i] = protocol.Bulk(name)
	}
	return protocol.Set(elems...)
}
