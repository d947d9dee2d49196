package lua

// exprKind is the form of an expression: where its value is, or how to load it.
type exprKind uint8

const (
	exVoid     exprKind = iota // an empty list, without a value
	exNil                      //
	exTrue                     //
	exFalse                    //
	exConst                    // constant info
	exNumber                   // the number n
	exLocal                    // the variable in register info
	exUpval                    // captured variable info
	exGlobal                   // the global whose name is constant info
	exLibrary                  // field constant aux of the library named library, whose value is constant info
	exIndexed                  // the table in register info, indexed by RK aux
	exJump                     // true if the jump at info is taken
	exReloc                    // the result of the instruction at info, in any register
	exNonReloc                 // register info
	exCall                     // the call at info
	exVararg                   // the opVararg at info
)

// expr is an expression whose code is not complete, since it depends on the use of the value.
type expr struct {
	kind      exprKind
	info, aux int
	n         float64
	library   string
	// trueJumps are taken if the expression is true, and falseJumps if it is false.
	trueJumps, falseJumps jumps
}

func newExpr(kind exprKind, info int) expr {
	return expr{kind: kind, info: info, trueJumps: noJumps, falseJumps: noJumps}
}

func (e *expr) hasJumps() bool { return e.trueJumps.first != e.falseJumps.first }

// set replaces e by another expression, but keeps the jumps.
func (e *expr) set(kind exprKind, info int) { e.kind, e.info = kind, info }

// become replaces e by another expression without jumps.
func (e *expr) become(kind exprKind, info int) { *e = newExpr(kind, info) }

func (e *expr) isNumeral() bool { return e.kind == exNumber && !e.hasJumps() }

func (p *parser) expression() expr { return p.binary(0) }

// expressionToRegister parses an expression, whose value goes to the next register.
func (p *parser) expressionToRegister() {
	e := p.expression()
	p.fn.toNextRegister(&e)
}

// expressionList parses n expressions. The values of all but the last go to registers.
func (p *parser) expressionList() (last expr, n int) {
	last, n = p.expression(), 1
	for p.accept(',') {
		p.fn.toNextRegister(&last)
		last = p.expression()
		n++
	}
	return last, n
}

// operator is a binary operator with its priorities. Its right operand includes the operators whose left priority is
// higher than its right priority.
type operator struct {
	left, right int
	op          opcode
}

const unaryPriority = 8

func binaryOperator(t token) (operator, bool) {
	switch t {
	case '+':
		return operator{6, 6, opAdd}, true
	case '-':
		return operator{6, 6, opSub}, true
	case '*':
		return operator{7, 7, opMul}, true
	case '/':
		return operator{7, 7, opDiv}, true
	case '%':
		return operator{7, 7, opMod}, true
	case '^':
		return operator{10, 9, opPow}, true
	case tkConcat:
		return operator{5, 4, opConcat}, true
	case tkNe, tkEq:
		return operator{3, 3, opEq}, true
	case '<', '>':
		return operator{3, 3, opLt}, true
	case tkLe, tkGe:
		return operator{3, 3, opLe}, true
	case tkAnd:
		return operator{2, 2, opTest}, true
	case tkOr:
		return operator{1, 1, opTest}, true
	default:
		return operator{}, false
	}
}

// binary parses an expression up to the first binary operator whose left priority is at most limit.
func (p *parser) binary(limit int) expr {
	p.enter()
	var e expr
	switch t := p.current.t; t {
	case tkNot, '-', '#':
		p.next()
		e = p.binary(unaryPriority)
		p.fn.unary(t, &e)
	default:
		e = p.simple()
	}
	for {
		t := p.current.t
		op, is := binaryOperator(t)
		if !is || op.left <= limit {
			p.leave()
			return e
		}
		p.next()
		p.fn.infix(t, &e)
		right := p.binary(op.right)
		p.fn.postfix(t, op.op, &e, &right)
	}
}

// simple parses an operand.
func (p *parser) simple() expr {
	var e expr
	switch p.current.t {
	case tkNumber:
		e = newExpr(exNumber, 0)
		e.n = p.current.n
	case tkString:
		e = newExpr(exConst, p.fn.stringConstant(p.current.s))
	case tkNil:
		e = newExpr(exNil, 0)
	case tkTrue:
		e = newExpr(exTrue, 0)
	case tkFalse:
		e = newExpr(exFalse, 0)
	case tkDots:
		fn := p.fn
		if fn.vararg == fixedArgs {
			p.failHere("cannot use '...' outside a vararg function")
		}
		fn.vararg = varArgs // the function uses "...", so it needs no table
		e = newExpr(exVararg, fn.emit(opVararg, 0, 1, 0))
	case '{':
		return p.constructor()
	case tkFunction:
		p.next()
		return p.functionBody(false, p.line)
	default:
		return p.primary()
	}
	p.next()
	return e
}

// primary parses a name or an expression in parentheses, and the fields, indexes and calls that follow.
func (p *parser) primary() expr {
	fn := p.fn
	e := p.prefix()
	for {
		switch p.current.t {
		case '.':
			p.field(&e)
		case '[':
			reg := fn.toAnyRegister(&e)
			key := p.index()
			fn.indexBy(&e, reg, &key)
		case ':':
			p.next()
			key := newExpr(exConst, fn.stringConstant(p.expectName()))
			fn.self(&e, &key)
			p.arguments(&e)
		case '(', tkString, '{':
			fn.toNextRegister(&e)
			p.arguments(&e)
		default:
			return e
		}
	}
}

func (p *parser) prefix() expr {
	switch p.current.t {
	case '(':
		line := p.line
		p.next()
		e := p.expression()
		p.expectEnd(')', '(', line)
		p.fn.discharge(&e)
		return e
	case tkName:
		return p.resolve(p.expectName())
	default:
		p.failHere("unexpected symbol")
		return expr{}
	}
}

// field parses ".name" or ":name" as an index.
func (p *parser) field(e *expr) {
	fn := p.fn
	if e.kind == exGlobal && p.current.t == '.' && p.libraryField(e) {
		return
	}
	reg := fn.toAnyRegister(e)
	p.next()
	key := newExpr(exConst, fn.stringConstant(p.expectName()))
	fn.indexBy(e, reg, &key)
}

// libraryField resolves a field of a library, such as "redis.call", to its value, which no script can change.
func (p *parser) libraryField(e *expr) bool {
	fn := p.fn
	name := fn.constants[e.info].o.(*str).s
	lib, is := p.lib.fixed(name).table()
	if !is || p.lookAhead() != tkName {
		return false
	}
	v := p.lib.field(lib, p.ahead.s)
	if v.isNil() || len(fn.constants)+2 > maxB {
		return false
	}
	p.next()
	key := fn.stringConstant(p.expectName())
	*e = newExpr(exLibrary, fn.constant(v))
	e.aux, e.library = key, name
	return true
}

// index parses "[expression]".
func (p *parser) index() expr {
	p.next()
	e := p.expression()
	p.fn.toValue(&e)
	p.expect(']')
	return e
}

// arguments parses the arguments of a call of the function e.
func (p *parser) arguments(e *expr) {
	fn, line := p.fn, p.line
	args := newExpr(exVoid, 0)
	switch p.current.t {
	case '(':
		if line != p.lastLine {
			p.failHere("ambiguous syntax (function call x new statement)")
		}
		p.next()
		if p.current.t != ')' {
			args, _ = p.expressionList()
			fn.openResults(&args)
		}
		p.expectEnd(')', '(', line)
	case '{':
		args = p.constructor()
	case tkString:
		args = newExpr(exConst, fn.stringConstant(p.current.s))
		p.next()
	default:
		p.failHere("function arguments expected")
	}
	base, n := e.info, openCount
	if args.kind != exCall && args.kind != exVararg {
		if args.kind != exVoid {
			fn.toNextRegister(&args)
		}
		n = fn.free - (base + 1)
	}
	e.become(exCall, fn.emit(opCall, base, n+1, 2))
	fn.fixLine(line)
	fn.free = base + 1 // one result replaces the function and the arguments
}

// functionBody parses a function from the parameters on.
func (p *parser) functionBody(isMethod bool, line int) expr {
	fn := p.openFunction(line)
	p.expect('(')
	if isMethod {
		fn.declare("self")
		fn.enterScope(1)
	}
	p.parameters()
	p.expect(')')
	p.chunk()
	p.expectEnd(tkEnd, tkFunction, line)
	p.closeFunction()
	return p.fn.closure(fn)
}

func (p *parser) parameters() {
	fn := p.fn
	n := 0
	if p.current.t != ')' {
		for more := true; more && fn.vararg == fixedArgs; {
			switch p.current.t {
			case tkName:
				fn.declare(p.expectName())
				n++
			case tkDots:
				p.next()
				fn.declare("arg")
				fn.vararg = tableArgs
				n++
			default:
				p.failHere("<name> or '...' expected")
			}
			more = fn.vararg == fixedArgs && p.accept(',')
		}
	}
	fn.enterScope(n)
	fn.params = len(fn.active)
	if fn.vararg != fixedArgs {
		fn.params-- // arg is not a parameter
	}
	fn.reserve(len(fn.active))
}

// constructor parses "{…}".
func (p *parser) constructor() expr {
	fn, line := p.fn, p.line
	c := tableConstructor{at: fn.emit(opNewTable, 0, 0, 0), item: newExpr(exVoid, 0)}
	e := newExpr(exReloc, c.at)
	c.table = fn.toNextRegister(&e)
	p.expect('{')
	for p.current.t != '}' {
		fn.flushItem(&c)
		switch {
		case p.current.t == '[':
			free := fn.free
			key := p.index()
			p.recordField(&c, &key)
			fn.free = free
		case p.current.t == tkName && p.lookAhead() == '=':
			free := fn.free
			key := newExpr(exConst, fn.stringConstant(p.expectName()))
			p.recordField(&c, &key)
			fn.free = free
		default:
			c.item = p.expression()
			c.items++
			c.unstored++
		}
		if !p.accept(',') && !p.accept(';') {
			break
		}
	}
	p.expectEnd('}', '{', line)
	fn.flushLast(&c)
	fn.code[c.at] = fn.code[c.at].withB(sizeHint(c.items)).withC(sizeHint(c.fields))
	return e
}

// tableConstructor is the state of a table constructor.
type tableConstructor struct {
	at    int  // the index of the opNewTable
	table int  // the register of the table
	item  expr // the last item, until it is in a register
	// items and fields are the numbers of items without and with a key. The last unstored items are not in the table yet.
	items, fields, unstored int
}

// recordField parses "= expression" for a key.
func (p *parser) recordField(c *tableConstructor, key *expr) {
	fn := p.fn
	c.fields++
	p.expect('=')
	rk := fn.toRK(key)
	val := p.expression()
	fn.emit(opSetTable, c.table, rk, fn.toRK(&val))
}

// flushItem emits the code that loads the last item into a register. If enough items are in registers, it emits the
// code that stores them.
func (fn *function) flushItem(c *tableConstructor) {
	if c.item.kind == exVoid {
		return
	}
	fn.toNextRegister(&c.item)
	c.item.kind = exVoid
	if c.unstored == elementsPerFlush {
		fn.setList(c.table, c.items, c.unstored)
		c.unstored = 0
	}
}

func (fn *function) flushLast(c *tableConstructor) {
	switch {
	case c.unstored == 0:
	case c.item.kind == exCall || c.item.kind == exVararg:
		fn.openResults(&c.item)
		fn.setList(c.table, c.items, openCount)
		c.items-- // the number of values is not known
	default:
		if c.item.kind != exVoid {
			fn.toNextRegister(&c.item)
		}
		fn.setList(c.table, c.items, c.unstored)
	}
}

// sizeHint encodes a count as three bits and an exponent, rounded up. The encoding must be that of Lua 5.1, since the
// length of a table with holes depends on it.
func sizeHint(n int) int {
	exponent := 0
	for n >= 16 {
		n = (n + 1) >> 1
		exponent++
	}
	if n < 8 {
		return n
	}
	return (exponent+1)<<3 | (n - 8)
}

// hintedSize decodes a size hint.
func hintedSize(hint int) int {
	if exponent := hint >> 3; exponent > 0 {
		return (hint&7 + 8) << (exponent - 1)
	}
	return hint
}
