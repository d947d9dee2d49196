package bit

import (
	"math"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// fieldWork is the work of an operation of BITFIELD.
const fieldWork = 128

// overflow selects the result of an operation on a number that does not fit into the field.
type overflow uint8

const (
	wraps     overflow = iota // the field gets the lower bits of the number
	saturates                 // the field gets the nearest number that fits
	fails                     // the field keeps its number, and the reply is null
)

// fieldOp is an operation of BITFIELD. The field starts at the bit with this offset.
type fieldOp struct {
	name     string // GET, SET or INCRBY
	signed   bool
	bits     uint
	offset   int64
	amount   int64
	overflow overflow
}

func bitfield(c *command.Call, readOnly bool) protocol.Value {
	ops, problem, ok := parseFieldOps(c.Args[2:])
	if !ok {
		return problem
	}
	if problem, ok := c.Charge(int64(len(ops)) * fieldWork); !ok {
		return problem
	}
	end := int64(0) // the end of the written fields in bits, or 0 if all operations only read
	for i := range ops {
		if ops[i].name != "GET" {
			end = max(end, ops[i].offset+int64(ops[i].bits))
		}
	}
	if end > 0 && readOnly {
		return protocol.Err("BITFIELD_RO only supports the GET subcommand")
	}
	if end == 0 {
		return readFields(c, ops)
	}
	w, problem, ok := openBytes(c, c.Args[1], (end+7)/8)
	if !ok {
		return problem
	}
	elems := make([]protocol.Value, len(ops))
	changed := false
	for i := range ops {
		var opChanged bool
		elems[i], opChanged = ops[i].run(w.bytes, w.grew)
		changed = changed || opChanged
	}
	if changed || w.grew {
		keepBytes(c, c.Args[1], &w)
	}
	if changed {
		c.Notify(event.ClassString, "setbit", c.Args[1])
	}
	return protocol.Array(elems...)
}

func readFields(c *command.Call, ops []fieldOp) protocol.Value {
	c.Counting = !c.Quiet
	it, ok := c.FindString(c.Args[1])
	if !ok {
		return command.ErrWrongType
	}
	value := ""
	if it != nil {
		value = it.Value()
	}
	elems := make([]protocol.Value, len(ops))
	for i := range ops {
		elems[i] = protocol.Integer(ops[i].read(value))
	}
	return protocol.Array(elems...)
}

func parseFieldOps(words []string) (ops []fieldOp, problem protocol.Value, ok bool) {
	mode := wraps
	for len(words) > 0 {
		var op fieldOp
		used := 4
		switch left := len(words) - 1; {
		case command.IsWord(words[0], "GET") && left >= 2:
			op.name, used = "GET", 3
		case command.IsWord(words[0], "SET") && left >= 3:
			op.name = "SET"
		case command.IsWord(words[0], "INCRBY") && left >= 3:
			op.name = "INCRBY"
		case command.IsWord(words[0], "OVERFLOW") && left >= 1:
			if mode, ok = parseOverflow(words[1]); !ok {
				return nil, protocol.Err("Invalid OVERFLOW type specified"), false
			}
			words = words[2:]
			continue
		default:
			return nil, command.ErrSyntax, false
		}
		op.overflow = mode
		if problem, ok = op.parse(words[1:used]); !ok {
			return nil, problem, false
		}
		ops = append(ops, op)
		words = words[used:]
	}
	return ops, problem, true
}

func parseOverflow(word string) (mode overflow, ok bool) {
	switch {
	case command.IsWord(word, "WRAP"):
		return wraps, true
	case command.IsWord(word, "SAT"):
		return saturates, true
	case command.IsWord(word, "FAIL"):
		return fails, true
	}
	return 0, false
}

// parse reads the type and the offset, and for SET and INCRBY the amount.
func (op *fieldOp) parse(words []string) (problem protocol.Value, ok bool) {
	kind := words[0]
	op.signed = kind != "" && kind[0] == 'i'
	n := int64(0)
	if op.signed || kind != "" && kind[0] == 'u' {
		n, ok = protocol.ParseInt(kind[1:])
	}
	if !ok || n < 1 || n > 64 || n == 64 && !op.signed {
		return protocol.Err("Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."),
			false
	}
	op.bits = uint(n)
	if op.offset, ok = fieldOffset(words[1], n); !ok {
		return errBitOffset, false
	}
	if len(words) > 2 {
		if op.amount, ok = protocol.ParseInt(words[2]); !ok {
			return command.ErrNotInteger, false
		}
	}
	return problem, true
}

// fieldOffset parses an offset in bits. Behind a #, the offset is in fields of this number of bits.
func fieldOffset(word string, bits int64) (offset int64, ok bool) {
	if word == "" || word[0] != '#' {
		return bitOffset(word)
	}
	n, ok := protocol.ParseInt(word[1:])
	if !ok || n < 0 || n >= endBitOffset/bits {
		return 0, false
	}
	return n * bits, true
}

func (op *fieldOp) read(s string) int64 {
	var v uint64
	for i := range int64(op.bits) {
		v = v<<1 | uint64(bitAt(s, op.offset+i))
	}
	if op.signed {
		return extend(v, op.bits)
	}
	return int64(v)
}

// extend returns the two's complement number in the lower bits of v.
func extend(v uint64, bits uint) int64 { return int64(v<<(64-bits)) >> (64 - bits) }

// run runs the operation on a string. changed reports whether Redis emits an event for the operation. It does so for
// each write to a string that grew.
func (op *fieldOp) run(b []byte, grew bool) (reply protocol.Value, changed bool) {
	from := op.offset >> 3
	to := min(int64(len(b)), (op.offset+int64(op.bits)+7)>>3)
	shifted := *op
	shifted.offset &= 7
	old := int64(0)
	if from < to {
		old = shifted.read(string(b[from:to]))
	}
	if op.name == "GET" {
		return protocol.Integer(old), false
	}
	next, fits := op.next(old)
	if !fits && op.overflow == fails {
		return protocol.Null, false
	}
	shifted.write(b[from:to], uint64(next))
	if op.name == "SET" {
		return protocol.Integer(old), next != old || grew
	}
	return protocol.Integer(next), next != old || grew
}

// write sets the field to the lower bits of v.
func (op *fieldOp) write(b []byte, v uint64) {
	for i := range int64(op.bits) {
		at := op.offset + int64(op.bits) - 1 - i
		mask := byte(1) << (7 - at&7)
		b[at>>3] &^= mask
		if v>>i&1 != 0 {
			b[at>>3] |= mask
		}
	}
}

// next returns the field's number after SET or INCRBY. fits reports whether the operation did not overflow.
func (op *fieldOp) next(old int64) (next int64, fits bool) {
	base, by := old, op.amount
	if op.name == "SET" {
		base, by = op.amount, 0
	}
	if op.signed {
		return op.nextSigned(base, by)
	}
	return op.nextUnsigned(uint64(base), by)
}

func (op *fieldOp) nextSigned(base, by int64) (next int64, fits bool) {
	highest := int64(math.MaxInt64)
	if op.bits < 64 {
		highest = 1<<(op.bits-1) - 1
	}
	lowest := -highest - 1
	above := base > highest || by > 0 && base > highest-by
	below := base < lowest || by < 0 && base < lowest-by
	switch {
	case !above && !below:
		return base + by, true
	case op.overflow == wraps:
		return extend(uint64(base)+uint64(by), op.bits), false
	case above:
		return highest, false
	}
	return lowest, false
}

func (op *fieldOp) nextUnsigned(base uint64, by int64) (next int64, fits bool) {
	highest := uint64(1)<<op.bits - 1
	above := base > highest || by > 0 && uint64(by) > highest-base
	below := by < 0 && uint64(-by) > base
	switch {
	case !above && !below:
		return int64(base + uint64(by)), true
	case op.overflow == wraps:
		return int64((base + uint64(by)) & highest), false
	case above:
		return int64(highest), false
	}
	return 0, false
}
