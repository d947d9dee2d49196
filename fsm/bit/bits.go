// Package bit has the commands for the bits of strings. Bit 0 is the highest bit of the first byte. All bits beyond the
// end of a string are 0.
package bit

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Ops has the commands for bits.
var Ops = map[string]command.Op{
	"bitcount":    bitcountOp,
	"bitfield":    command.With(bitfield, false),
	"bitfield_ro": command.With(bitfield, true),
	"bitop":       bitopOp,
	"bitpos":      bitposOp,
	"getbit":      getbitOp,
	"setbit":      setbitOp,
}

var (
	errBitOffset = protocol.Err("bit offset is not an integer or out of range")
	errBit       = protocol.Err("bit is not an integer or out of range")
)

// endBitOffset is the first offset that Redis refuses: it limits strings to 512 MiB.
const endBitOffset = 512 << 20 * 8

func bitOffset(word string) (offset int64, ok bool) {
	offset, ok = protocol.ParseInt(word)
	return offset, ok && 0 <= offset && offset < endBitOffset
}

func bitAt(s string, offset int64) int64 {
	if offset>>3 >= int64(len(s)) {
		return 0
	}
	return int64(s[offset>>3]>>(7-offset&7)) & 1
}

// writable is a mutable copy of the string of a key.
type writable struct {
	bytes          []byte
	deadlineMillis int64
	grew           bool // the key is missing, or its string is shorter than bytes
}

// openBytes copies the string of a key, and pads the copy with zeros to at least minBytes. If ok is false, problem is
// the reply.
func openBytes(c *command.Call, key string, minBytes int64) (w writable, problem protocol.Value, ok bool) {
	it, ok := c.FindString(key)
	if !ok {
		return w, command.ErrWrongType, false
	}
	if minBytes > command.MaxValueBytes {
		return w, command.ErrTooLong, false
	}
	value := ""
	w.deadlineMillis = command.Never
	if it != nil {
		value, w.deadlineMillis = it.Value(), it.DeadlineMillis
	}
	n := max(int64(len(value)), minBytes)
	if !c.Fits(2 * n) {
		return w, command.ErrOverWork, false
	}
	c.Spend(n)
	w.bytes = make([]byte, n)
	w.grew = it == nil || n > int64(len(value))
	copy(w.bytes, value)
	return w, problem, true
}

// keepBytes stores a string that openBytes returned.
func keepBytes(c *command.Call, key string, w *writable) {
	c.Store(c.DB, c.NewItem(key, string(w.bytes), w.deadlineMillis, keyspace.EncodingRaw))
}

func setbitOp(c *command.Call) protocol.Value {
	offset, ok := bitOffset(c.Args[2])
	if !ok {
		return errBitOffset
	}
	on, ok := protocol.ParseInt(c.Args[3])
	if !ok || on&^1 != 0 {
		return errBit
	}
	it, ok := c.FindString(c.Args[1])
	if !ok {
		return command.ErrWrongType
	}
	if it != nil && offset>>3 < int64(len(it.Value())) && bitAt(it.Value(), offset) == on {
		return protocol.Integer(on)
	}
	w, problem, ok := openBytes(c, c.Args[1], offset>>3+1)
	if !ok {
		return problem
	}
	mask := byte(1) << (7 - offset&7)
	old := command.Boolean(w.bytes[offset>>3]&mask != 0)
	w.bytes[offset>>3] &^= mask
	if on != 0 {
		w.bytes[offset>>3] |= mask
	}
	keepBytes(c, c.Args[1], &w)
	c.Notify(event.ClassString, "setbit", c.Args[1])
	return old
}

func getbitOp(c *command.Call) protocol.Value {
	offset, ok := bitOffset(c.Args[2])
	if !ok {
		return errBitOffset
	}
	it, reply, ok := c.FindStringOr(c.Args[1], command.Zero)
	if !ok {
		return reply
	}
	return protocol.Integer(bitAt(it.Value(), offset))
}

// bitRange is the range of BITCOUNT and BITPOS. Its bounds are indexes of bytes or bits, and both are inclusive.
type bitRange struct {
	first, last int64
	inBits      bool
	hasLast     bool // the command has a last index
}

// parseBitRange reads [first [last [BYTE | BIT]]].
func parseBitRange(words []string) (r bitRange, problem protocol.Value, ok bool) {
	r.last = -1
	if len(words) > 3 {
		return r, command.ErrSyntax, false
	}
	if len(words) > 0 {
		if r.first, ok = protocol.ParseInt(words[0]); !ok {
			return r, command.ErrNotInteger, false
		}
	}
	if len(words) == 3 {
		if r.inBits = command.IsWord(words[2], "BIT"); !r.inBits && !command.IsWord(words[2], "BYTE") {
			return r, command.ErrSyntax, false
		}
	}
	if len(words) > 1 {
		if r.last, ok = protocol.ParseInt(words[1]); !ok {
			return r, command.ErrNotInteger, false
		}
		r.hasLast = true
	}
	return r, problem, true
}

// in returns the range of bits in a string of n bytes: from inclusive, to exclusive.
func (r bitRange) in(n int) (from, to int64) {
	unit := 8
	if r.inBits {
		unit, n = 1, 8*n
	}
	first, end := command.ByteRange(r.first, r.last, n)
	return int64(first * unit), int64(end * unit)
}

// bytesPerWork is the number of bytes that BITCOUNT and BITPOS read for a unit of work.
const bytesPerWork = 4

func bitcountOp(c *command.Call) protocol.Value {
	if len(c.Args) == 3 {
		return command.ErrSyntax
	}
	r, problem, ok := parseBitRange(c.Args[2:])
	if !ok {
		return problem
	}
	it, reply, ok := c.FindStringOr(c.Args[1], command.Zero)
	switch {
	case !ok:
		return reply
	case r.first < 0 && r.last < 0 && r.first > r.last:
		return command.Zero
	}
	from, to := r.in(len(it.Value()))
	if problem, ok := c.Charge((to - from) / 8 / bytesPerWork); !ok {
		return problem
	}
	return protocol.Integer(countBits(it.Value(), from, to))
}

// countBits counts the bits that are 1, from inclusive, to exclusive.
func countBits(s string, from, to int64) (n int64) {
	for ; from < to && from%8 != 0; from++ {
		n += bitAt(s, from)
	}
	for ; from < to && to%8 != 0; to-- {
		n += bitAt(s, to-1)
	}
	b := s[from/8 : max(from, to)/8]
	for ; len(b) >= 8; b = b[8:] {
		n += int64(bits.OnesCount64(word64(b)))
	}
	for i := range len(b) {
		n += int64(bits.OnesCount8(b[i]))
	}
	return n
}

// word64 returns the first 8 bytes of s as a big-endian number.
func word64(s string) uint64 {
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

func bitposOp(c *command.Call) protocol.Value {
	bit, ok := protocol.ParseInt(c.Args[2])
	switch {
	case !ok:
		return command.ErrNotInteger
	case bit != 0 && bit != 1:
		return protocol.Err("The bit argument must be 1 or 0.")
	}
	r, problem, ok := parseBitRange(c.Args[3:])
	if !ok {
		return problem
	}
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Integer(-bit))
	if !ok {
		return reply
	}
	from, to := r.in(len(it.Value()))
	if problem, ok := c.Charge((to - from) / 8 / bytesPerWork); !ok {
		return problem
	}
	at := findBit(it.Value(), from, to, bit)
	if at == to && (from == to || bit == 1 || r.hasLast) {
		return protocol.Integer(-1)
	}
	return protocol.Integer(at) // if all bits are 1, the first 0 follows the end of the string
}

// findBit returns the first index of a bit with this value, from inclusive, to exclusive. If there is none, it returns
// to.
func findBit(s string, from, to, bit int64) int64 {
	none := uint64(0)
	if bit == 0 {
		none = math.MaxUint64
	}
	for from < to {
		if from%8 == 0 && to-from >= 64 && word64(s[from/8:]) == none {
			from += 64
			continue
		}
		if bitAt(s, from) == bit {
			return from
		}
		from++
	}
	return to
}

func bitopOp(c *command.Call) protocol.Value {
	op, target, keys := strings.ToUpper(c.Args[1]), c.Args[2], c.Args[3:]
	ofFirst := op == "DIFF" || op == "DIFF1" || op == "ANDOR"
	switch {
	case op == "NOT" && len(keys) != 1:
		return protocol.Err("BITOP NOT must be called with a single source key.")
	case ofFirst && len(keys) < 2:
		return protocol.Err("BITOP " + op + " must be called with at least two source keys.")
	case !ofFirst && op != "NOT" && op != "AND" && op != "OR" && op != "XOR" && op != "ONE":
		return command.ErrSyntax
	}
	values := make([]string, len(keys))
	longest := 0
	for i, key := range keys {
		it, ok := c.FindString(key)
		if !ok {
			return command.ErrWrongType
		}
		if it != nil {
			values[i] = it.Value()
		}
		longest = max(longest, len(values[i]))
	}
	if problem, ok := c.Charge(int64(longest * (len(values) + 3))); !ok {
		return problem
	}
	if longest == 0 {
		c.RemoveTarget(target)
		return command.Zero
	}
	c.Store(c.DB, c.NewItem(target, combineBits(op, values, longest), command.Never, keyspace.EncodingRaw))
	c.Notify(event.ClassString, "set", target)
	return protocol.Integer(int64(longest))
}

// combineBits returns the result of BITOP. It pads the strings with zeros to n bytes, the length of the longest.
func combineBits(op string, values []string, n int) string {
	result := make([]byte, n)
	copy(result, values[0])
	switch op {
	case "NOT":
		for i := range result {
			result[i] = ^result[i]
		}
	case "AND", "OR", "XOR":
		for _, v := range values[1:] {
			combineInto(op, result, v)
		}
	default:
		combineOthers(op, result, values[1:])
	}
	return string(result)
}

// combineInto stores the AND, OR or XOR of result and v in result.
func combineInto(op string, result []byte, v string) {
	head := result[:len(v)]
	switch op {
	case "AND":
		for i := range head {
			head[i] &= v[i]
		}
		clear(result[len(v):])
	case "OR":
		for i := range head {
			head[i] |= v[i]
		}
	case "XOR":
		for i := range head {
			head[i] ^= v[i]
		}
	}
}

// combineOthers is DIFF, DIFF1, ANDOR or ONE of the first string, which result has, and the others. The first three
// combine the first string with the OR of the others. ONE has the bits that exactly one string has.
func combineOthers(op string, result []byte, values []string) {
	others := make([]byte, len(result)) // the OR of the others
	twice := make([]byte, len(result))  // the bits that at least two of the others have
	for _, v := range values {
		for i := range len(v) {
			twice[i] |= others[i] & v[i]
			others[i] |= v[i]
		}
	}
	for i := range result {
		first, other := result[i], others[i]
		switch op[len(op)-1] {
		case 'F': // DIFF
			result[i] = first &^ other
		case '1': // DIFF1
			result[i] = other &^ first
		case 'R': // ANDOR
			result[i] = first & other
		case 'E': // ONE
			result[i] = (first | other) &^ (twice[i] | first&other)
		}
	}
}
