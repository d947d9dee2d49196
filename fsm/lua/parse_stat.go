package lua

func blockEnds(t token) bool {
	switch t {
	case tkElse, tkElseif, tkEnd, tkEOF, tkUntil:
		return true
	default:
		return false
	}
}

// chunk parses statements up to the end of a block.
func (p *parser) chunk() {
	p.enter()
	for last := false; !last && !blockEnds(p.current.t); {
		last = p.statement()
		p.accept(';')
		p.fn.free = len(p.fn.active) // only variables outlive a statement
	}
	p.leave()
}

// scopedChunk parses a block with its own scope.
func (p *parser) scopedChunk() {
	var b block
	p.fn.enterBlock(&b, false)
	p.chunk()
	p.fn.leaveBlock()
}

// statement parses a statement, and reports whether it must be the last one of its block.
func (p *parser) statement() (last bool) {
	line := p.line
	switch p.current.t {
	case tkIf:
		p.ifStatement(line)
	case tkWhile:
		p.whileStatement(line)
	case tkDo:
		p.next()
		p.scopedChunk()
		p.expectEnd(tkEnd, tkDo, line)
	case tkFor:
		p.forStatement(line)
	case tkRepeat:
		p.repeatStatement(line)
	case tkFunction:
		p.functionStatement(line)
	case tkLocal:
		p.next()
		if p.accept(tkFunction) {
			p.localFunction()
		} else {
			p.localStatement()
		}
	case tkReturn:
		p.returnStatement()
		return true
	case tkBreak:
		p.next()
		p.breakStatement()
		return true
	default:
		p.expressionStatement()
	}
	return false
}

// condition parses an expression, and returns the jumps that are taken if it is false.
func (p *parser) condition() jumps {
	e := p.expression()
	if e.kind == exNil {
		e.kind = exFalse
	}
	p.fn.jumpIfFalse(&e)
	return e.falseJumps
}

// guardedBlock parses "if condition then block", and returns the jumps that skip the block.
func (p *parser) guardedBlock() jumps {
	p.next()
	jumps := p.condition()
	p.expect(tkThen)
	p.scopedChunk()
	return jumps
}

func (p *parser) ifStatement(line int) {
	fn := p.fn
	escapes := noJumps
	skip := p.guardedBlock()
	for p.current.t == tkElseif {
		escapes = fn.join(escapes, fn.jump())
		fn.patchHere(skip)
		skip = p.guardedBlock()
	}
	if p.current.t == tkElse {
		escapes = fn.join(escapes, fn.jump())
		fn.patchHere(skip)
		p.next()
		p.scopedChunk()
	} else {
		escapes = fn.join(escapes, skip)
	}
	fn.patchHere(escapes)
	p.expectEnd(tkEnd, tkIf, line)
}

func (p *parser) whileStatement(line int) {
	fn := p.fn
	p.next()
	start := fn.label()
	exits := p.condition()
	var b block
	fn.enterBlock(&b, true)
	p.expect(tkDo)
	p.scopedChunk()
	fn.patch(fn.jump(), start)
	p.expectEnd(tkEnd, tkWhile, line)
	fn.leaveBlock()
	fn.patchHere(exits)
}

// repeatStatement parses a repeat loop. The scope of the body includes the condition, so captured variables are closed
// after the condition, whether the loop continues or ends.
func (p *parser) repeatStatement(line int) {
	fn := p.fn
	start := fn.label()
	var loop, scope block
	fn.enterBlock(&loop, true)
	fn.enterBlock(&scope, false)
	p.next()
	p.chunk()
	p.expectEnd(tkUntil, tkRepeat, line)
	again := p.condition()
	if !scope.captures {
		fn.leaveBlock()
		fn.patch(again, start)
	} else {
		p.breakStatement()
		fn.patchHere(again)
		fn.leaveBlock()
		fn.patch(fn.jump(), start)
	}
	fn.leaveBlock()
}

func (p *parser) forStatement(line int) {
	fn := p.fn
	var b block
	fn.enterBlock(&b, true)
	p.next()
	name := p.expectName()
	switch p.current.t {
	case '=':
		p.numericFor(name, line)
	case ',', tkIn:
		p.genericFor(name)
	default:
		p.failHere("'=' or 'in' expected")
	}
	p.expectEnd(tkEnd, tkFor, line)
	fn.leaveBlock()
}

func (p *parser) numericFor(name string, line int) {
	fn := p.fn
	base := fn.free
	fn.declare("(for index)")
	fn.declare("(for limit)")
	fn.declare("(for step)")
	fn.declare(name)
	p.expect('=')
	p.expressionToRegister()
	p.expect(',')
	p.expressionToRegister()
	if p.accept(',') {
		p.expressionToRegister()
	} else {
		fn.emitX(opLoadK, fn.free, fn.numberConstant(1))
		fn.reserve(1)
	}
	p.forBody(base, line, 1, true)
}

func (p *parser) genericFor(name string) {
	fn := p.fn
	base := fn.free
	fn.declare("(for generator)")
	fn.declare("(for state)")
	fn.declare("(for control)")
	fn.declare(name)
	vars := 1
	for p.accept(',') {
		fn.declare(p.expectName())
		vars++
	}
	p.expect(tkIn)
	line := p.line
	e, n := p.expressionList()
	fn.adjustAssign(3, n, &e)
	fn.checkRegisters(3) // for the call of the generator
	p.forBody(base, line, vars, false)
}

func (p *parser) forBody(base, line, vars int, numeric bool) {
	fn := p.fn
	fn.enterScope(3)
	p.expect(tkDo)
	var prepare jumps
	if numeric {
		prepare = oneJump(fn.emitX(opForPrep, base, noJump))
	} else {
		prepare = fn.jump()
	}
	var b block
	fn.enterBlock(&b, false)
	fn.enterScope(vars)
	fn.reserve(vars)
	p.chunk()
	fn.leaveBlock()
	fn.patchHere(prepare)
	if numeric {
		end := fn.emitX(opForLoop, base, noJump)
		fn.fixLine(line)
		fn.patch(oneJump(end), prepare.first+1)
		return
	}
	fn.emit(opTForLoop, base, 0, vars)
	fn.fixLine(line)
	fn.patch(fn.jump(), prepare.first+1)
}

// functionStatement parses "function a.b.c:d() … end".
func (p *parser) functionStatement(line int) {
	p.next()
	target := p.resolve(p.expectName())
	isMethod := false
	for p.current.t == '.' {
		p.field(&target)
	}
	if p.current.t == ':' {
		isMethod = true
		p.field(&target)
	}
	body := p.functionBody(isMethod, line)
	p.fn.store(&target, &body)
	p.fn.fixLine(line)
}

func (p *parser) localFunction() {
	fn := p.fn
	fn.declare(p.expectName())
	local := newExpr(exLocal, fn.free)
	fn.reserve(1)
	fn.enterScope(1) // the scope includes the body
	body := p.functionBody(false, p.line)
	fn.store(&local, &body)
	fn.locals[fn.active[len(fn.active)-1]].from = len(fn.code)
}

func (p *parser) localStatement() {
	fn := p.fn
	vars := 0
	for more := true; more; more = p.accept(',') {
		fn.declare(p.expectName())
		vars++
	}
	e, n := newExpr(exVoid, 0), 0
	if p.accept('=') {
		e, n = p.expressionList()
	}
	fn.adjustAssign(vars, n, &e)
	fn.enterScope(vars)
}

func (p *parser) returnStatement() {
	fn := p.fn
	p.next()
	if blockEnds(p.current.t) || p.current.t == ';' {
		fn.emitReturn(0, 0)
		return
	}
	e, n := p.expressionList()
	switch {
	case e.kind == exCall || e.kind == exVararg:
		fn.openResults(&e)
		if e.kind == exCall && n == 1 {
			fn.code[e.info] = fn.code[e.info].withOp(opTailCall)
		}
		fn.emitReturn(len(fn.active), openCount)
	case n == 1:
		fn.emitReturn(fn.toAnyRegister(&e), 1)
	default:
		fn.toNextRegister(&e)
		fn.emitReturn(len(fn.active), n)
	}
}

func (p *parser) breakStatement() {
	fn := p.fn
	b, captures := fn.block, false
	for b != nil && !b.isLoop {
		captures = captures || b.captures
		b = b.outer
	}
	if b == nil {
		p.failHere("no loop to break")
	}
	if captures {
		fn.emit(opClose, b.active, 0, 0)
	}
	b.breaks = fn.join(b.breaks, fn.jump())
}

// expressionStatement parses a call or an assignment.
func (p *parser) expressionStatement() {
	target := assignment{}
	target.e = p.primary()
	if target.e.kind == exCall {
		call := &p.fn.code[target.e.info]
		*call = call.withC(1) // no results
		return
	}
	p.assign(&target, 1)
}

// assignment is a target of an assignment, and a list of the targets before it.
type assignment struct {
	before *assignment
	e      expr
}

func (p *parser) assign(target *assignment, n int) {
	fn := p.fn
	switch target.e.kind {
	case exLocal, exUpval, exGlobal, exIndexed, exLibrary:
	default:
		p.failHere("syntax error")
	}
	if p.accept(',') {
		next := assignment{before: target}
		next.e = p.primary()
		if next.e.kind == exLocal {
			fn.keepFromConflict(target, &next.e)
		}
		fn.limit(n, maxNesting-p.depth, "variables in assignment")
		p.assign(&next, n+1)
	} else {
		p.expect('=')
		e, values := p.expressionList()
		if values == n {
			fn.oneResult(&e)
			fn.store(&target.e, &e)
			return
		}
		fn.adjustAssign(n, values, &e)
		if values > n {
			fn.free -= values - n // drop the surplus
		}
	}
	e := newExpr(exNonReloc, fn.free-1)
	fn.store(&target.e, &e)
}

// keepFromConflict copies a local variable that earlier targets use if the assignment changes it. In "a[i], i = …" the
// index is the copy, which has the old value.
func (fn *function) keepFromConflict(target *assignment, local *expr) {
	copied := fn.free
	conflict := false
	for ; target != nil; target = target.before {
		if target.e.kind != exIndexed {
			continue
		}
		if target.e.info == local.info {
			conflict = true
			target.e.info = copied
		}
		if target.e.aux == local.info {
			conflict = true
			target.e.aux = copied
		}
	}
	if conflict {
		fn.emit(opMove, copied, local.info, 0)
		fn.reserve(1)
	}
}
