package lua

import "fmt"

// The compiler emits code while it parses, in one pass and without a syntax tree. Its time and memory are linear in the
// length of the source. It recurses as deep as the source nests.

// The limits of a function, as in Lua 5.1. Error messages name them.
const (
	maxLocals   = 200
	maxUpvalues = 60
	// maxNesting limits nested expressions, blocks and functions, and the variables of an assignment.
	maxNesting = 200
)

// parser compiles a chunk.
type parser struct {
	lexer
	fn    *function
	depth int
	// symbols has the names of all local variables so far.
	symbols map[string]*symbol
	named   []*symbol // the symbols by symbol.name
	names   *names
	lib     *library
}

// function is the state of a function whose code is not complete.
type function struct {
	*proto
	outer *function
	p     *parser
	block *block
	// pending has the jumps to the next instruction.
	pending jumps
	// lastTarget is the last target of a jump.
	lastTarget int
	// free is the first free register.
	free int
	// active has the local variables in scope, by register. The values are indexes into locals.
	active []int
	// declared has the local variables whose scope has not begun.
	declared []int
	index    map[any]int // the constants by key
}

// symbol is a name with its variables in the functions that are not complete. Scopes nest, so the current variable is
// the last one. A search in the enclosing functions would take quadratic time if nested functions share variables.
type symbol struct {
	name int32 // an index into names
	// inScope has the local variables of this name, the innermost last.
	inScope []variable
	// captured has the captured variables of this name, that of the innermost function last. Enclosing functions capture
	// a variable before the functions inside of them.
	captured []variable
}

// variable is a local or captured variable of a function.
type variable struct {
	fn    *function
	index int // the register, or the index in captured
}

// block is a block of statements.
type block struct {
	outer *block
	// breaks has the jumps out of the loop.
	breaks jumps
	// active is the number of local variables in scope before the block.
	active   int
	captures bool // a closure captures a local variable of the block
	isLoop   bool
}

// compileChunk compiles a source. chunkName is "@name", or the source itself. lib has the globals of the source.
func compileChunk(source, chunkName string, lib *library) (main *proto, err error) {
	defer func() {
		if r := recover(); r != nil {
			failure, is := r.(*syntaxError)
			if !is {
				panic(r)
			}
			err = failure
		}
	}()
	p := &parser{
		lexer: lexer{src: source, line: 1, lastLine: 1, chunkName: chunkName}, symbols: make(map[string]*symbol),
		names: new(names), lib: lib,
	}
	fn := p.openFunction(0)
	fn.vararg = varArgs
	p.next()
	p.chunk()
	p.check(tkEOF)
	p.closeFunction()
	return fn.proto, nil
}

func (p *parser) openFunction(line int) *function {
	fn := &function{
		proto:   &proto{source: p.chunkName, line: line, registers: 2, names: p.names},
		outer:   p.fn,
		p:       p,
		pending: noJumps, lastTarget: -1,
		index: make(map[any]int),
	}
	p.fn = fn
	return fn
}

func (p *parser) closeFunction() {
	fn := p.fn
	fn.leaveScope(0)
	fn.emitReturn(0, 0)
	for _, c := range fn.captured {
		s := p.named[c.name]
		s.captured = s.captured[:len(s.captured)-1]
	}
	p.fn = fn.outer
}

// enter begins a level of nesting, and leave ends it.
func (p *parser) enter() {
	p.depth++
	if p.depth > maxNesting {
		p.fail("chunk has too many syntax levels")
	}
}

func (p *parser) leave() { p.depth-- }

// limit fails if a function exceeds a limit.
func (fn *function) limit(n, limit int, what string) {
	if n <= limit {
		return
	}
	if fn.line == 0 {
		fn.p.fail(fmt.Sprintf("main function has more than %d %s", limit, what))
	}
	fn.p.fail(fmt.Sprintf("function at line %d has more than %d %s", fn.line, limit, what))
}

// accept skips the current token if it is t.
func (p *parser) accept(t token) bool {
	if p.current.t != t {
		return false
	}
	p.next()
	return true
}

func (p *parser) check(t token) {
	if p.current.t != t {
		p.failHere("'" + tokenText(t) + "' expected")
	}
}

func (p *parser) expect(t token) {
	p.check(t)
	p.next()
}

// expectEnd expects the token end, which closes the token begin at a line.
func (p *parser) expectEnd(end, begin token, line int) {
	if p.accept(end) {
		return
	}
	if line == p.line {
		p.failHere("'" + tokenText(end) + "' expected")
	}
	p.failHere(fmt.Sprintf("'%s' expected (to close '%s' at line %d)", tokenText(end), tokenText(begin), line))
}

func (p *parser) expectName() string {
	p.check(tkName)
	name := p.current.s
	p.next()
	return name
}

// declare declares a local variable. Its scope begins with enterScope.
func (fn *function) declare(name string) {
	fn.limit(len(fn.active)+len(fn.declared)+1, maxLocals, "local variables")
	fn.declared = append(fn.declared, len(fn.locals))
	fn.locals = append(fn.locals, localName{name: name})
}

// enterScope begins the scope of the first n declared variables.
func (fn *function) enterScope(n int) {
	for _, local := range fn.declared[:n] {
		fn.locals[local].from = len(fn.code)
		s := fn.p.symbol(fn.locals[local].name)
		s.inScope = append(s.inScope, variable{fn, len(fn.active)})
		fn.active = append(fn.active, local)
	}
	fn.declared = append(fn.declared[:0], fn.declared[n:]...)
}

// leaveScope ends the scope of all variables but the first n.
func (fn *function) leaveScope(n int) {
	for _, local := range fn.active[n:] {
		fn.locals[local].to = len(fn.code)
		s := fn.p.symbols[fn.locals[local].name]
		s.inScope = s.inScope[:len(s.inScope)-1]
	}
	fn.active = fn.active[:n]
}

func (fn *function) enterBlock(b *block, isLoop bool) {
	*b = block{outer: fn.block, breaks: noJumps, active: len(fn.active), isLoop: isLoop}
	fn.block = b
}

func (fn *function) leaveBlock() {
	b := fn.block
	fn.block = b.outer
	fn.leaveScope(b.active)
	if b.captures {
		fn.emit(opClose, b.active, 0, 0)
	}
	fn.free = len(fn.active)
	fn.patchHere(b.breaks)
}

func (p *parser) symbol(name string) *symbol {
	s := p.symbols[name]
	if s == nil {
		s = &symbol{name: int32(len(p.named))}
		p.symbols[name] = s
		p.named, p.names.list = append(p.named, s), append(p.names.list, name)
	}
	return s
}

// resolve returns the variable of a name: a local variable, a captured variable, or a global.
func (p *parser) resolve(name string) expr {
	s := p.symbols[name]
	if s == nil || len(s.inScope) == 0 {
		return newExpr(exGlobal, p.fn.stringConstant(name))
	}
	v := s.inScope[len(s.inScope)-1]
	if v.fn == p.fn {
		return newExpr(exLocal, v.index)
	}
	return newExpr(exUpval, p.fn.capture(s, v))
}

// capture captures v, a variable of an enclosing function, and returns its index in the captured variables of fn. All
// functions in between capture v, too.
func (fn *function) capture(s *symbol, v variable) int {
	if n := len(s.captured); n > 0 && s.captured[n-1].fn == fn {
		return s.captured[n-1].index
	}
	index, fromReg := v.index, v.fn == fn.outer
	if fromReg {
		fn.outer.markCaptured(index)
	} else {
		index = fn.outer.capture(s, v)
	}
	n := len(fn.captured)
	fn.limit(n+1, maxUpvalues, "upvalues")
	fn.captured = append(fn.captured, capture{name: s.name, index: uint8(index), fromReg: fromReg})
	s.captured = append(s.captured, variable{fn, n})
	return n
}

// markCaptured records that a closure captures the variable in a register, so its block must close it.
func (fn *function) markCaptured(reg int) {
	b := fn.block
	for b != nil && b.active > reg {
		b = b.outer
	}
	if b != nil {
		b.captures = true
	}
}
