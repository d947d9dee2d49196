package lua

import "math"

// jumpIfFalse emits a jump that is taken if e is false. The next instruction runs if e is true.
func (fn *function) jumpIfFalse(e *expr) {
	fn.discharge(e)
	jump := noJumps
	switch e.kind {
	case exConst, exNumber, exTrue:
	case exJump:
		fn.invert(e)
		jump = oneJump(e.info)
	default:
		jump = fn.jumpOn(e, false)
	}
	e.falseJumps = fn.join(e.falseJumps, jump)
	fn.patchHere(e.trueJumps)
	e.trueJumps = noJumps
}

// jumpIfTrue emits a jump that is taken if e is true. The next instruction runs if e is false.
func (fn *function) jumpIfTrue(e *expr) {
	fn.discharge(e)
	jump := noJumps
	switch e.kind {
	case exNil, exFalse:
	case exJump:
		jump = oneJump(e.info)
	default:
		jump = fn.jumpOn(e, true)
	}
	e.trueJumps = fn.join(e.trueJumps, jump)
	fn.patchHere(e.falseJumps)
	e.falseJumps = noJumps
}

// invert inverts the condition of a jump.
func (fn *function) invert(e *expr) {
	at := fn.conditionAt(e.info)
	fn.code[at] = fn.code[at].withA(1 - fn.code[at].a())
}

// jumpOn emits a jump that is taken if the truth of e is wanted. It replaces an opNot by the inverse test of the
// operand.
func (fn *function) jumpOn(e *expr, wanted bool) jumps {
	if e.kind == exReloc {
		if i := fn.code[e.info]; i.op() == opNot {
			fn.code = fn.code[:len(fn.code)-1]
			fn.lines = fn.lines[:len(fn.code)]
			return fn.conditional(encode(opTest, i.b(), 0, flag(!wanted)))
		}
	}
	fn.intoAny(e)
	fn.releaseExpr(e)
	return fn.conditional(encode(opTestSet, noRegister, e.info, flag(wanted)))
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (fn *function) conditional(i instr) jumps {
	fn.append(i)
	return fn.jump()
}

// unary applies a prefix operator.
func (fn *function) unary(t token, e *expr) {
	switch t {
	case '-':
		if !e.isNumeral() {
			fn.toAnyRegister(e) // the operand must not be a constant
		}
		zero := newExpr(exNumber, 0)
		fn.arith(opUnm, e, &zero)
	case '#':
		fn.toAnyRegister(e)
		zero := newExpr(exNumber, 0)
		fn.arith(opLen, e, &zero)
	default:
		fn.not(e)
	}
}

func (fn *function) not(e *expr) {
	fn.discharge(e)
	switch e.kind {
	case exNil, exFalse:
		e.kind = exTrue
	case exConst, exNumber, exTrue:
		e.kind = exFalse
	case exJump:
		fn.invert(e)
	default:
		fn.intoAny(e)
		fn.releaseExpr(e)
		e.set(exReloc, fn.emit(opNot, 0, e.info, 0))
	}
	e.trueJumps, e.falseJumps = e.falseJumps, e.trueJumps
	fn.dropValues(e.falseJumps)
	fn.dropValues(e.trueJumps)
}

// infix prepares the left operand, before the right one is parsed.
func (fn *function) infix(t token, e *expr) {
	switch t {
	case tkAnd:
		fn.jumpIfFalse(e)
	case tkOr:
		fn.jumpIfTrue(e)
	case tkConcat:
		fn.toNextRegister(e) // the operands must be in adjacent registers
	case '+', '-', '*', '/', '%', '^':
		if !e.isNumeral() {
			fn.toRK(e)
		}
	default:
		fn.toRK(e)
	}
}

// postfix applies a binary operator to two operands, and stores the result in left.
func (fn *function) postfix(t token, op opcode, left, right *expr) {
	switch t {
	case tkAnd:
		fn.discharge(right)
		right.falseJumps = fn.join(right.falseJumps, left.falseJumps)
		*left = *right
	case tkOr:
		fn.discharge(right)
		right.trueJumps = fn.join(right.trueJumps, left.trueJumps)
		*left = *right
	case tkConcat:
		fn.concat(left, right)
	case tkEq:
		fn.compare(op, true, left, right)
	case tkNe:
		fn.compare(op, false, left, right)
	case '<', tkLe:
		fn.compare(op, true, left, right)
	case '>', tkGe:
		fn.compareSwapped(op, left, right)
	default:
		fn.arith(op, left, right)
	}
}

// concat emits one instruction for a .. (b .. c).
func (fn *function) concat(left, right *expr) {
	fn.toValue(right)
	if right.kind == exReloc {
		if i := fn.code[right.info]; i.op() == opConcat {
			fn.releaseExpr(left)
			fn.code[right.info] = i.withB(left.info)
			left.set(exReloc, right.info)
			return
		}
	}
	fn.toNextRegister(right)
	fn.arith(opConcat, left, right)
}

// arith emits an arithmetic operation, or computes it if both operands are numerals.
func (fn *function) arith(op opcode, left, right *expr) {
	if fn.fold(op, left, right) {
		return
	}
	c := 0
	if op != opUnm && op != opLen {
		c = fn.toRK(right)
	}
	b := fn.toRK(left)
	if b > c {
		fn.releaseExpr(left)
		fn.releaseExpr(right)
	} else {
		fn.releaseExpr(right)
		fn.releaseExpr(left)
	}
	left.set(exReloc, fn.emit(op, 0, b, c))
}

// fold computes an operation on numerals. It returns false if an operand is not a numeral, for a division by 0, and for
// a NaN.
func (fn *function) fold(op opcode, left, right *expr) bool {
	if !left.isNumeral() || !right.isNumeral() {
		return false
	}
	var r float64
	switch op {
	case opDiv, opMod:
		if right.n == 0 {
			return false
		}
		r = arithmetic(op, left.n, right.n)
	case opAdd, opSub, opMul, opPow:
		r = arithmetic(op, left.n, right.n)
	case opUnm:
		r = neg(left.n)
	default:
		return false
	}
	if math.IsNaN(r) {
		return false
	}
	left.n = r
	return true
}

func (fn *function) compare(op opcode, wanted bool, left, right *expr) {
	b, c := fn.toRK(left), fn.toRK(right)
	fn.releaseExpr(right)
	fn.releaseExpr(left)
	left.set(exJump, fn.conditional(encode(op, flag(wanted), b, c)).first)
}

// compareSwapped emits the comparison a > b as b < a.
func (fn *function) compareSwapped(op opcode, left, right *expr) {
	b, c := fn.toRK(left), fn.toRK(right)
	fn.releaseExpr(right)
	fn.releaseExpr(left)
	left.set(exJump, fn.conditional(encode(op, 1, c, b)).first)
}
