package lua

// Code generation: instructions, jumps, registers and constants. code_expr.go puts expressions into
// registers, code_op.go has the operators.

const (
	// noJump is the distance of a jump that has no target yet.
	noJump = -1
	// openCount is a number of values that is known at run time only.
	openCount = -1
)

// jumps is a list of jumps to one place that is not known yet, threaded through the distances. Lua keeps
// the head only. With the end, two lists are joined in one step, so that a long chain of "or" does not
// take quadratic time.
type jumps struct{ first, last int }

var noJumps = jumps{noJump, noJump}

func oneJump(pc int) jumps { return jumps{pc, pc} }

// emit appends an instruction, and returns the place.
func (fn *function) emit(op opcode, a, b, c int) int { return fn.append(encode(op, a, b, c)) }

// emitX appends an instruction with a wide operand.
func (fn *function) emitX(op opcode, a, bx int) int { return fn.append(encodeX(op, a, bx)) }

func (fn *function) append(i instr) int {
	fn.patchPending()
	fn.code = append(fn.code, i)
	fn.lines = append(fn.lines, int32(fn.p.lastLine))
	return len(fn.code) - 1
}

// fixLine says that the last instruction belongs to a line.
func (fn *function) fixLine(line int) { fn.lines[len(fn.lines)-1] = int32(line) }

func (fn *function) emitReturn(first, n int) { fn.emit(opReturn, first, n+1, 0) }

// emitNil makes n registers nil. If the instruction before does the same to neighbouring registers, that
// instruction is widened. At the start of a function registers are nil.
func (fn *function) emitNil(from, n int) {
	if pc := len(fn.code); pc > fn.lastTarget {
		if pc == 0 {
			if from >= len(fn.active) {
				return
			}
		} else if last := fn.code[pc-1]; last.op() == opLoadNil && last.a() <= from && from <= last.b()+1 {
			if from+n-1 > last.b() {
				fn.code[pc-1] = last.withB(from + n - 1)
			}
			return
		}
	}
	fn.emit(opLoadNil, from, from+n-1, 0)
}

// checkRegisters sees that n more registers can be used.
func (fn *function) checkRegisters(n int) {
	if need := fn.free + n; need > fn.registers {
		if need >= maxRegisters {
			fn.p.failHere("function or expression too complex")
		}
		fn.registers = need
	}
}

func (fn *function) reserve(n int) {
	fn.checkRegisters(n)
	fn.free += n
}

// release gives a register back, unless a variable has the register.
func (fn *function) release(reg int) {
	if reg&constantBit == 0 && reg >= len(fn.active) {
		fn.free--
	}
}

func (fn *function) releaseExpr(e *expr) {
	if e.kind == exNonReloc {
		fn.release(e.info)
	}
}

// addConstant returns the index of a constant; key is unique to the constant.
func (fn *function) addConstant(key any, v value) int {
	if i, have := fn.index[key]; have {
		return i
	}
	i := len(fn.constants)
	fn.index[key] = i
	fn.constants = append(fn.constants, v)
	return i
}

func (fn *function) stringConstant(s string) int {
	if i, have := fn.index[s]; have {
		return i
	}
	return fn.addConstant(s, constant(s))
}

func (fn *function) numberConstant(n float64) int { return fn.addConstant(n, number(n)) }

// constant adds a value that is neither string nor number.
func (fn *function) constant(v value) int {
	if v.isNil() {
		return fn.addConstant(struct{}{}, v)
	}
	switch x := v.o.(type) {
	case *str:
		return fn.stringConstant(x.s)
	case numberTag:
		return fn.numberConstant(v.n)
	default:
		return fn.addConstant(v.o, v)
	}
}

// jump emits a jump to a place that is not known yet. Jumps to this jump go on to the same place, so they
// are in the list too.
func (fn *function) jump() jumps {
	pending := fn.pending
	fn.pending = noJumps
	return fn.join(oneJump(fn.emitX(opJmp, 0, noJump)), pending)
}

// label marks the next instruction as a target, so that the instruction before is not merged with it.
func (fn *function) label() int {
	fn.lastTarget = len(fn.code)
	return len(fn.code)
}

// jumpTarget is the target of the jump at pc; in a list, the next jump.
func (fn *function) jumpTarget(pc int) int {
	if distance := fn.code[pc].bx(); distance != noJump {
		return pc + 1 + distance
	}
	return noJump
}

func (fn *function) setJump(pc, target int) { fn.code[pc] = fn.code[pc].withBx(target - (pc + 1)) }

// join returns a list with the jumps of two.
func (fn *function) join(a, b jumps) jumps {
	if a.first == noJump {
		return b
	}
	if b.first == noJump {
		return a
	}
	fn.setJump(a.last, b.first)
	return jumps{a.first, b.last}
}

// conditionAt returns the place of the instruction that decides whether the jump at pc is taken.
func (fn *function) conditionAt(pc int) int {
	if pc >= 1 {
		switch fn.code[pc-1].op() {
		case opEq, opLt, opLe, opTest, opTestSet, opTForLoop:
			return pc - 1
		}
	}
	return pc
}

// needsValue reports whether some jump of a list carries no value to the target.
func (fn *function) needsValue(list jumps) bool {
	for pc := list.first; pc != noJump; pc = fn.jumpTarget(pc) {
		if fn.code[fn.conditionAt(pc)].op() != opTestSet {
			return true
		}
	}
	return false
}

// retarget makes the test of a jump put the value into a register, or, for noRegister, drop the value. It
// reports whether the jump carries a value.
func (fn *function) retarget(pc, reg int) bool {
	at := fn.conditionAt(pc)
	i := fn.code[at]
	if i.op() != opTestSet {
		return false
	}
	if reg != noRegister && reg != i.b() {
		fn.code[at] = i.withA(reg)
	} else {
		fn.code[at] = encode(opTest, i.b(), 0, i.c())
	}
	return true
}

func (fn *function) dropValues(list jumps) {
	for pc := list.first; pc != noJump; pc = fn.jumpTarget(pc) {
		fn.retarget(pc, noRegister)
	}
}

// patchList sends the jumps that carry a value into reg to one target, and the other jumps to another.
func (fn *function) patchList(list jumps, withValue, reg, other int) {
	for pc := list.first; pc != noJump; {
		next := fn.jumpTarget(pc)
		if fn.retarget(pc, reg) {
			fn.setJump(pc, withValue)
		} else {
			fn.setJump(pc, other)
		}
		pc = next
	}
}

func (fn *function) patchPending() {
	here := len(fn.code)
	fn.patchList(fn.pending, here, noRegister, here)
	fn.pending = noJumps
}

// patch sends the jumps of a list to a target.
func (fn *function) patch(list jumps, target int) {
	if target == len(fn.code) {
		fn.patchHere(list)
		return
	}
	fn.patchList(list, target, noRegister, target)
}

// patchHere sends the jumps of a list to the next instruction.
func (fn *function) patchHere(list jumps) {
	fn.label()
	fn.pending = fn.join(fn.pending, list)
}

// setList stores the last n of a constructor's items read so far; for openCount,
// the values up to the top.
func (fn *function) setList(table, items, n int) {
	block := (items-1)/elementsPerFlush + 1
	if block > maxB {
		fn.p.failHere("function or expression too complex")
	}
	fn.emit(opSetList, table, max(n, 0), block)
	fn.free = table + 1
}

// closure emits the creation of a closure of a function that has been compiled.
func (fn *function) closure(inner *function) expr {
	fn.protos = append(fn.protos, inner.proto)
	return newExpr(exReloc, fn.emitX(opClosure, 0, len(fn.protos)-1))
}
