package str

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// cellWork is the work of a cell in the table of LCS.
const cellWork = 16

// lcsOptions has the options LEN, IDX, WITHMATCHLEN and MINMATCHLEN.
type lcsOptions struct {
	length, indexes, lengths bool
	minLength                int64
}

func lcsOp(c *command.Call) protocol.Value {
	var values [2]string
	for i := range values {
		it, ok := c.FindString(c.Args[1+i])
		if !ok {
			return protocol.Err("The specified keys must contain string values")
		}
		if it != nil {
			values[i] = it.Value()
		}
	}
	o, problem, ok := parseLCS(c.Args[3:])
	if !ok {
		return problem
	}
	a, b := values[0], values[1]
	if problem, ok := c.Charge((int64(len(a)) + 1) * (int64(len(b)) + 1) * cellWork); !ok {
		return problem
	}
	t := newLCSTable(a, b)
	if o.length {
		return protocol.Integer(int64(t.at(len(a), len(b))))
	}
	common, ranges := t.walk(&o)
	if !o.indexes {
		return protocol.Bulk(common)
	}
	return protocol.Map(protocol.Bulk("matches"), protocol.Array(ranges...), protocol.Bulk("len"),
		protocol.Integer(int64(len(common))))
}

func parseLCS(words []string) (o lcsOptions, problem protocol.Value, ok bool) {
	for ; len(words) > 0; words = words[1:] {
		switch {
		case command.IsWord(words[0], "LEN"):
			o.length = true
		case command.IsWord(words[0], "IDX"):
			o.indexes = true
		case command.IsWord(words[0], "WITHMATCHLEN"):
			o.lengths = true
		case command.IsWord(words[0], "MINMATCHLEN") && len(words) > 1:
			if o.minLength, ok = protocol.ParseInt(words[1]); !ok {
				return o, command.ErrNotInteger, false
			}
			words = words[1:]
		default:
			return o, command.ErrSyntax, false
		}
	}
	if o.length && o.indexes {
		return o, protocol.Err("If you want both the length and indexes, please just use IDX."), false
	}
	return o, problem, true
}

// lcsTable has at each i and j the length of the longest common subsequence of a[:i] and b[:j].
type lcsTable struct {
	a, b  string
	cells []uint32
}

func newLCSTable(a, b string) *lcsTable {
	t := &lcsTable{a: a, b: b, cells: make([]uint32, (len(a)+1)*(len(b)+1))}
	width := len(b) + 1
	for i := range len(a) {
		above, row := t.cells[i*width:(i+1)*width], t.cells[(i+1)*width:(i+2)*width]
		for j := range len(b) {
			if a[i] == b[j] {
				row[j+1] = above[j] + 1
			} else {
				row[j+1] = max(above[j+1], row[j])
			}
		}
	}
	return t
}

func (t *lcsTable) at(i, j int) uint32 { return t.cells[i*(len(t.b)+1)+j] }

// lcsMatch is a range of common bytes that walk extends to the front. The bounds are inclusive.
type lcsMatch struct {
	open         bool
	fromA, fromB int
	toA, toB     int
}

// walk reads the subsequence and its ranges from the table, from the end to the front. Of several subsequences it
// selects the one that Redis selects.
func (t *lcsTable) walk(o *lcsOptions) (common string, ranges []protocol.Value) {
	i, j := len(t.a), len(t.b)
	left := int(t.at(i, j))
	result := make([]byte, left)
	var m lcsMatch
	for i > 0 && j > 0 {
		ends := false
		if t.a[i-1] == t.b[j-1] {
			left--
			result[left] = t.a[i-1]
			ends = m.extend(i, j)
			i--
			j--
		} else {
			if t.at(i-1, j) > t.at(i, j-1) {
				i--
			} else {
				j--
			}
			ends = m.open
		}
		if ends {
			if n := m.toA - m.fromA + 1; int64(n) >= o.minLength {
				ranges = append(ranges, m.value(n, o.lengths))
			}
			m.open = false
		}
	}
	return string(result), ranges
}

// extend adds the bytes before i and j to the match, and reports whether the match ends. As in Redis, bytes that end a
// match since they do not adjoin it are in no match.
func (m *lcsMatch) extend(i, j int) (ends bool) {
	switch {
	case !m.open:
		*m = lcsMatch{true, i - 1, j - 1, i - 1, j - 1}
	case m.fromA == i && m.fromB == j:
		m.fromA--
		m.fromB--
	default:
		return true
	}
	return m.fromA == 0 || m.fromB == 0
}

func (m *lcsMatch) value(n int, withLength bool) protocol.Value {
	pair := func(from, to int) protocol.Value {
		return protocol.Array(protocol.Integer(int64(from)), protocol.Integer(int64(to)))
	}
	elems := []protocol.Value{pair(m.fromA, m.toA), pair(m.fromB, m.toB)}
	if withLength {
		elems = append(elems, protocol.Integer(int64(n)))
	}
	return protocol.Array(elems...)
}
