package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// pops is how elements are taken off an end of lists, or of sorted sets.
type pops struct {
	kind keyspace.Kind
	// take takes count elements off the collection of key, which has as many, and tells so.
	take func(c *call, key string, count int) (elems []protocol.Value, problem protocol.Value, ok bool)
	// reply is the elements in the reply to LMPOP or ZMPOP.
	reply func(elems ...protocol.Value) protocol.Value
}

// popsList takes elements off a side of lists.
func popsList(at side) pops {
	return pops{keyspace.KindList, func(c *call, key string, count int) ([]protocol.Value, protocol.Value, bool) {
		return c.pop(key, at, count)
	}, protocol.Array}
}

// popsScored takes members, each followed by the score, off an end of sorted sets.
func popsScored(at extreme) pops {
	return pops{keyspace.KindSortedSet, func(c *call, key string, count int) ([]protocol.Value, protocol.Value, bool) {
		return c.popExtremes(key, at, count)
	}, nested}
}

// count is how many elements the collection of key has, 0 if the key is absent. ok is false if the key is of
// another kind.
func (c *call) count(key string, kind keyspace.Kind) (n int, ok bool) {
	it := c.find(key)
	switch {
	case it == nil:
		return 0, true
	case it.Kind() != kind:
		return 0, false
	}
	return it.Collection().Len(), true
}

// popCount reads the count of LPOP and its like. counted: there is one.
func (c *call) popCount() (count int64, counted, ok bool) {
	if len(c.args) == 2 {
		return 1, false, true
	}
	count, ok = protocol.ParseInt(c.args[2])
	return count, true, ok && count >= 0
}

// manyKeys are the words of LMPOP and ZMPOP: the keys, the end, and how many elements are asked for.
type manyKeys struct {
	pops
	keys []string
	most int64
}

// parseManyKeys reads the words of LMPOP and ZMPOP behind the name: numkeys, keys, which end, and COUNT.
func parseManyKeys(words []string, parseEnd func(word string) (p pops, ok bool)) (m manyKeys, problem protocol.Value,
	ok bool,
) {
	n, ok := protocol.ParseInt(words[0])
	if !ok || n < 1 {
		return m, errNumKeys, false
	}
	if n > int64(len(words)-2) {
		return m, errSyntax, false
	}
	m.keys, m.most = words[1:1+n], 1
	problem = m.parseCount(words[2+n:])
	if m.pops, ok = parseEnd(words[1+n]); !ok {
		return m, errSyntax, false
	}
	return m, problem, !problem.IsError()
}

func parseSidePop(word string) (p pops, ok bool) {
	at, ok := parseSide(word)
	return popsList(at), ok
}

func parseExtremePop(word string) (p pops, ok bool) {
	at := extreme(isWord(word, "MAX"))
	return popsScored(at), at == highest || isWord(word, "MIN")
}

// parseCount reads COUNT and a number.
func (m *manyKeys) parseCount(words []string) (problem protocol.Value) {
	if len(words) == 0 {
		return problem
	}
	if len(words) < 2 || !isWord(words[0], "COUNT") {
		return errSyntax
	}
	n, ok := protocol.ParseInt(words[1])
	if !ok || n < 1 {
		return protocol.Err("count should be greater than 0")
	}
	if len(words) > 2 {
		return errSyntax
	}
	m.most = min(n, math.MaxInt32)
	return problem
}

func lmpopOp(c *call) protocol.Value { return c.popManyNow(parseSidePop) }
func zmpopOp(c *call) protocol.Value { return c.popManyNow(parseExtremePop) }

// popManyNow is LMPOP and ZMPOP.
func (c *call) popManyNow(parseEnd func(word string) (p pops, ok bool)) protocol.Value {
	m, problem, ok := parseManyKeys(c.args[1:], parseEnd)
	if !ok {
		return problem
	}
	reply, _ := c.popMany(&m)
	return reply
}

// popMany takes elements off the first collection that is there. none: there is none.
func (c *call) popMany(m *manyKeys) (reply protocol.Value, none bool) {
	for _, key := range m.keys {
		n, ok := c.count(key, m.kind)
		if !ok {
			return errWrongType, false
		}
		if n == 0 {
			continue
		}
		elems, problem, ok := m.take(c, key, int(min(m.most, int64(n))))
		if !ok {
			return problem, false
		}
		return protocol.Array(protocol.Bulk(key), m.reply(elems...)), false
	}
	return protocol.NullArray, true
}
