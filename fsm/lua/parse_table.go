package lua

// constructor reads "{…}".
func (p *parser) constructor() expr {
	fn, line := p.fn, p.line
	c := tableConstructor{at: fn.emit(opNewTable, 0, 0, 0), item: newExpr(exVoid, 0)}
	e := newExpr(exReloc, c.at)
	c.table = fn.toNextRegisterOf(&e)
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
	at    int // its opNewTable
	table int // register
	item  expr
	// items and fields are counts; unstored items wait in registers.
	items, fields, unstored int
}

// recordField reads "= expression" for a key.
func (p *parser) recordField(c *tableConstructor, key *expr) {
	fn := p.fn
	c.fields++
	p.expect('=')
	rk := fn.toRK(key)
	val := p.expression()
	fn.emit(opSetTable, c.table, rk, fn.toRK(&val))
}

// flushItem puts the item before into a register, and stores the items in registers once there are
// enough.
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
		c.items-- // how many it will be is not known
	default:
		if c.item.kind != exVoid {
			fn.toNextRegister(&c.item)
		}
		fn.setList(c.table, c.items, c.unstored)
	}
}

// sizeHint packs a count into three bits and an exponent, rounding up, as Lua 5.1 does: the length of a
// table with holes depends on the hint.
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

// hintedSize is the count that a size hint stands for.
func hintedSize(hint int) int {
	if exponent := hint >> 3; exponent > 0 {
		return (hint&7 + 8) << (exponent - 1)
	}
	return hint
}
