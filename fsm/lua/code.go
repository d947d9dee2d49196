package lua

// Code generation: instructions, jumps, registers and constants. The code for expressions is in code_expr.go, and the
// code for operators in code_op.go.

const (
	// noJump is the distance of a jump without a target, and the end of a list of jumps.
	noJump = -1
	// openCount stands for a number of values that is known only at run time.
	openCount = -1
)

// jumps is a linked list of jumps to a target that is not known yet. The distance of a jump links to the next one.
// Unlike Lua's, the list has its last jump, too: two lists can be joined in constant time, so a long chain of "or" does
// not take quadratic time.
type jumps struct{ first, last int }

var noJumps = jumps{noJump, noJump}

func oneJump(pc int) jumps { return jumps{pc, pc} }

// emit appends an instruction, and returns its index.
func (fn *function) emit(op opcode, a, b, c int) int { return fn.append(encode(op, a, b, c)) }

// emitX appends an instruction with a wide operand.
func (fn *function) emitX(op opcode, a, bx int) int { return fn.append(encodeX(op, a, bx)) }

func (fn *function) append(i instr) int {
	fn.patchPending()
	fn.code = append(fn.code, i)
	fn.lines = append(fn.lines, int32(fn.p.lastLine))
	return len(fn.code) - 1
}

// fixLine sets the line of the last instruction.
func (fn *function) fixLine(line int) { fn.lines[len(fn.lines)-1] = int32(line) }

func (fn *function) emitReturn(first, n int) { fn.emit(opReturn, first, n+1, 0) }

// emitNil sets n registers to nil. It extends the last instruction instead, if that sets adjacent registers to nil. At
// the start of a function it emits nothing, since the registers are nil.
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

// checkRegisters fails if the function cannot have n more registers than it uses.
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

// release frees a register, unless the operand is a constant or the register has a variable.
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

// addConstant returns the index of a constant, and adds the constant if it is new. Different constants must have
// different keys.
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

// constant returns the index of a constant of any type.
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

// jump emits a jump without a target. Pending jumps to this jump would continue to the same target, so the list
// includes them.
func (fn *function) jump() jumps {
	pending := fn.pending
	fn.pending = noJumps
	return fn.join(oneJump(fn.emitX(opJmp, 0, noJump)), pending)
}

// label returns the index of the next instruction, and marks it as the target of a jump. emitNil then does not merge it
// with the instruction before.
func (fn *function) label() int {
	fn.lastTarget = len(fn.code)
	return len(fn.code)
}

// jumpTarget returns the target of the jump at pc or, for a jump in a list, the next jump.
func (fn *function) jumpTarget(pc int) int {
	if distance := fn.code[pc].bx(); distance != noJump {
		return pc + 1 + distance
	}
	return noJump
}

func (fn *function) setJump(pc, target int) { fn.code[pc] = fn.code[pc].withBx(target - (pc + 1)) }

// join concatenates two lists.
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

// conditionAt returns the index of the test that controls the jump at pc, or pc if the jump is unconditional.
func (fn *function) conditionAt(pc int) int {
	if pc >= 1 {
		switch fn.code[pc-1].op() {
		case opEq, opLt, opLe, opTest, opTestSet, opTForLoop:
			return pc - 1
		}
	}
	return pc
}

// needsValue reports whether a jump of a list does not set the register of the result.
func (fn *function) needsValue(list jumps) bool {
	for pc := list.first; pc != noJump; pc = fn.jumpTarget(pc) {
		if fn.code[fn.conditionAt(pc)].op() != opTestSet {
			return true
		}
	}
	return false
}

// retarget sets the register in which the test of a jump stores the tested value. For noRegister the test no longer
// stores it. retarget returns false if the test never stores a value.
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

// patchList sets the targets of a list: withValue for the jumps that store a value in reg, other for the others.
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

// patch sets the target of the jumps of a list.
func (fn *function) patch(list jumps, target int) {
	if target == len(fn.code) {
		fn.patchHere(list)
		return
	}
	fn.patchList(list, target, noRegister, target)
}

// patchHere makes the next instruction the target of the jumps of a list.
func (fn *function) patchHere(list jumps) {
	fn.label()
	fn.pending = fn.join(fn.pending, list)
}

// setList emits the code that stores the last n of items array elements of a table constructor. For openCount, the code
// stores the values up to the top.
func (fn *function) setList(table, items, n int) {
	block := (items-1)/elementsPerFlush + 1
	if block > maxB {
		fn.p.failHere("function or expression too complex")
	}
	fn.emit(opSetList, table, max(n, 0), block)
	fn.free = table + 1
}

// closure emits the code that creates a closure of a compiled function.
func (fn *function) closure(inner *function) expr {
	fn.protos = append(fn.protos, inner.proto)
	return newExpr(exReloc, fn.emitX(opClosure, 0, len(fn.protos)-1))
}
