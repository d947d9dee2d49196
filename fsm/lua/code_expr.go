package lua

// openResults makes a call or varargs expression return all its values.
func (fn *function) openResults(e *expr) { fn.setResults(e, openCount) }

func (fn *function) setResults(e *expr, n int) {
	switch e.kind {
	case exCall:
		fn.code[e.info] = fn.code[e.info].withC(n + 1)
	case exVararg:
		fn.code[e.info] = fn.code[e.info].withB(n + 1).withA(fn.free)
		fn.reserve(1)
	}
}

// oneResult makes a call or varargs expression return one value.
func (fn *function) oneResult(e *expr) {
	switch e.kind {
	case exCall:
		e.set(exNonReloc, fn.code[e.info].a())
	case exVararg:
		fn.code[e.info] = fn.code[e.info].withB(2)
		e.kind = exReloc
	}
}

// discharge emits the code that reads a variable of any kind.
func (fn *function) discharge(e *expr) {
	switch e.kind {
	case exLocal:
		e.kind = exNonReloc
	case exUpval:
		e.set(exReloc, fn.emit(opGetUpval, 0, e.info, 0))
	case exGlobal:
		e.set(exReloc, fn.global(e.info))
	case exLibrary:
		e.set(exReloc, fn.emit(opLibrary, 0, e.info, e.aux))
	case exIndexed:
		fn.release(e.aux)
		fn.release(e.info)
		e.set(exReloc, fn.indexed(e.info, e.aux))
	case exCall, exVararg:
		fn.oneResult(e)
	}
}

// indexed emits the code that reads a field.
func (fn *function) indexed(table, key int) int {
	if key&constantBit != 0 {
		if _, is := fn.constants[key&^constantBit].str(); is {
			return fn.emit(opGetField, 0, table, key&^constantBit)
		}
	}
	return fn.emit(opGetTable, 0, table, key)
}

// global emits the code that reads a global variable. Globals that are the same in all runs are constants.
func (fn *function) global(name int) int {
	v := fn.p.lib.fixed(fn.constants[name].o.(*str).s)
	if !v.isNil() && len(fn.constants) < maxB {
		return fn.emit(opGlobal, 0, name, fn.constant(v))
	}
	return fn.emitX(opGetGlobal, 0, name)
}

// into emits the code that stores the value of an expression in a register. It ignores the jumps of the expression.
func (fn *function) into(e *expr, reg int) {
	fn.discharge(e)
	switch e.kind {
	case exNil:
		fn.emitNil(reg, 1)
	case exFalse, exTrue:
		isTrue := 0
		if e.kind == exTrue {
			isTrue = 1
		}
		fn.emit(opLoadBool, reg, isTrue, 0)
	case exConst:
		fn.emitX(opLoadK, reg, e.info)
	case exNumber:
		fn.emitX(opLoadK, reg, fn.numberConstant(e.n))
	case exReloc:
		fn.code[e.info] = fn.code[e.info].withA(reg)
	case exNonReloc:
		if reg != e.info {
			fn.emit(opMove, reg, e.info, 0)
		}
	default:
		return // nothing, or a jump
	}
	e.set(exNonReloc, reg)
}

func (fn *function) intoAny(e *expr) {
	if e.kind != exNonReloc {
		fn.reserve(1)
		fn.into(e, fn.free-1)
	}
}

// toRegister emits the code that stores the value of an expression in a register, whatever jumps are taken.
func (fn *function) toRegister(e *expr, reg int) {
	fn.into(e, reg)
	if e.kind == exJump {
		e.trueJumps = fn.join(e.trueJumps, oneJump(e.info))
	}
	if e.hasJumps() {
		loadFalse, loadTrue := noJump, noJump
		if fn.needsValue(e.trueJumps) || fn.needsValue(e.falseJumps) {
			over := noJumps
			if e.kind != exJump {
				over = fn.jump()
			}
			fn.label()
			loadFalse = fn.emit(opLoadBool, reg, 0, 1)
			fn.label()
			loadTrue = fn.emit(opLoadBool, reg, 1, 0)
			fn.patchHere(over)
		}
		end := fn.label()
		fn.patchList(e.falseJumps, end, reg, loadFalse)
		fn.patchList(e.trueJumps, end, reg, loadTrue)
	}
	e.become(exNonReloc, reg)
}

// toNextRegister emits the code that stores the value of an expression in the next free register. It returns the
// register.
func (fn *function) toNextRegister(e *expr) int {
	fn.discharge(e)
	fn.releaseExpr(e)
	fn.reserve(1)
	fn.toRegister(e, fn.free-1)
	return e.info
}

// toAnyRegister returns the register of an expression. If the expression has none, it emits the code that stores the
// value in the next free one.
func (fn *function) toAnyRegister(e *expr) int {
	fn.discharge(e)
	if e.kind == exNonReloc {
		if !e.hasJumps() {
			return e.info
		}
		if e.info >= len(fn.active) { // the register has no variable
			fn.toRegister(e, e.info)
			return e.info
		}
	}
	return fn.toNextRegister(e)
}

// toValue emits the code that is needed for an expression to be a constant or in a register.
func (fn *function) toValue(e *expr) {
	if e.hasJumps() {
		fn.toAnyRegister(e)
	} else {
		fn.discharge(e)
	}
}

// toRK returns an expression as an RK operand: a constant if possible, and otherwise a register.
func (fn *function) toRK(e *expr) int {
	fn.toValue(e)
	index := maxRKIndex + 1
	switch e.kind {
	case exNil:
		index = fn.constant(nilValue)
	case exTrue, exFalse:
		index = fn.constant(boolean(e.kind == exTrue))
	case exNumber:
		index = fn.numberConstant(e.n)
	case exConst:
		index = e.info
	}
	if index <= maxRKIndex {
		e.set(exConst, index)
		return index | constantBit
	}
	return fn.toAnyRegister(e)
}

// indexBy sets e to the expression table[key] with the table in reg.
func (fn *function) indexBy(e *expr, reg int, key *expr) {
	aux := fn.toRK(key)
	e.become(exIndexed, reg)
	e.aux = aux
}

// store emits the code that assigns e to a variable.
func (fn *function) store(target, e *expr) {
	switch target.kind {
	case exLocal:
		fn.releaseExpr(e)
		fn.toRegister(e, target.info)
		return
	case exUpval:
		fn.emit(opSetUpval, fn.toAnyRegister(e), target.info, 0)
	case exGlobal:
		fn.emitX(opSetGlobal, fn.toAnyRegister(e), target.info)
	case exIndexed:
		fn.emit(opSetTable, target.info, target.aux, fn.toRK(e))
	case exLibrary:
		fn.storeField(target, e)
	}
	fn.releaseExpr(e)
}

// storeField emits the code of an assignment to a library's field. The assignment fails at run time.
func (fn *function) storeField(target, e *expr) {
	val := fn.toAnyRegister(e)
	fn.reserve(2)
	lib := newExpr(exGlobal, fn.stringConstant(target.library))
	fn.into(&lib, fn.free-2)
	fn.emitX(opLoadK, fn.free-1, target.aux)
	fn.emit(opSetTable, fn.free-2, fn.free-1, val)
	fn.free -= 2
}

// self emits the code that loads a method and its object.
func (fn *function) self(e, key *expr) {
	object := fn.toAnyRegister(e)
	fn.releaseExpr(e)
	base := fn.free
	fn.reserve(2)
	fn.emit(opSelf, base, object, fn.toRK(key))
	fn.releaseExpr(key)
	e.set(exNonReloc, base)
}

// adjustAssign adjusts a list of n expressions to vars variables. The last expression is e. If there are too few
// values, e returns more, or nils follow.
func (fn *function) adjustAssign(vars, n int, e *expr) {
	extra := vars - n
	if e.kind == exCall || e.kind == exVararg {
		extra = max(extra+1, 0)
		fn.setResults(e, extra)
		if extra > 1 {
			fn.reserve(extra - 1)
		}
		return
	}
	if e.kind != exVoid {
		fn.toNextRegister(e)
	}
	if extra > 0 {
		reg := fn.free
		fn.reserve(extra)
		fn.emitNil(reg, extra)
	}
}
