package lua

import (
	"strconv"
	"strings"
)

// raised is a Lua error that no handler has caught yet. It is not a Go error, since its value may be any Lua value.
type raised struct {
	value value
	final bool // handlers must not change the error
}

// throw returns an error with a message.
func (l *state) throw(message string) *raised { return &raised{value: l.newString(message)} }

// runtimeError returns an error of the virtual machine. In a Lua function, the message begins with the position.
func (l *state) runtimeError(message string) *raised {
	if f := l.frame; f.closure != nil {
		message = f.where() + message
	}
	return l.throw(message)
}

// fail returns an error of a library function. The message begins with the position of the caller.
func (l *state) fail(message string) *raised { return l.throw(l.where(1) + message) }

// where returns "chunk:line: " for the function at a level of the call chain, or "" if it is not a Lua function. The
// running function has level 0.
func (l *state) where(level int) string {
	if f, ok := l.level(level); ok && f != nil && f.closure != nil {
		return f.where()
	}
	return ""
}

// where returns "chunk:line: " for the current instruction of a Lua function.
func (f *frame) where() string {
	return chunkID(f.closure.proto.source) + ":" + strconv.Itoa(f.line()) + ": "
}

func (f *frame) line() int { return int(f.closure.proto.lines[f.pc-1]) }

// level returns the frame at a level of the call chain. ok reports whether the level exists. The level of a call that a
// tail call replaced exists, but f is nil.
func (l *state) level(level int) (f *frame, ok bool) {
	for f = l.frame; f != nil && f.fn >= 0; f = f.prev {
		l.charge(1)
		if level == 0 {
			return f, true
		}
		level--
		if level < f.tails {
			return nil, true
		}
		level -= f.tails
	}
	return nil, false
}

// typeError returns the error for a value that does not support an operation. slot is the value's slot, or noOperand.
// The message names the variable in the slot, if there is one.
func (l *state) typeError(slot int, v value, operation string) *raised {
	name := ""
	if f := l.frame; slot != noOperand && f.closure != nil {
		name = l.variableAt(f, slot-f.base)
	}
	if name != "" {
		name += " "
		return l.runtimeError("attempt to " + operation + " " + name + "(a " + v.typeName() + " value)")
	}
	return l.runtimeError("attempt to " + operation + " a " + v.typeName() + " value")
}

func (l *state) compareError(a, b value) *raised {
	x, y := a.typeName(), b.typeName()
	if x == y {
		return l.runtimeError("attempt to compare two " + x + " values")
	}
	return l.runtimeError("attempt to compare " + x + " with " + y)
}

// argError returns the error for an invalid argument of the running library function. The message names the function as
// the calling code does.
func (l *state) argError(n int, message string) *raised {
	name, isMethod := l.calledAs()
	if isMethod {
		n--
		if n == 0 {
			return l.fail("calling '" + name + "' on bad self (" + message + ")")
		}
	}
	return l.fail("bad argument #" + strconv.Itoa(n) + " to '" + name + "' (" + message + ")")
}

// calledAs returns the name by which the running library function was called.
func (l *state) calledAs() (name string, isMethod bool) {
	caller := l.frame.prev
	if caller == nil || caller.closure == nil || caller.pc == 0 {
		return "?", false
	}
	p := caller.closure.proto
	i := p.code[caller.pc-1]
	switch i.op() {
	case opCall, opTailCall, opTForLoop:
	default:
		return "?", false
	}
	kind, name, _ := strings.Cut(l.variableAt(caller, i.a()), " ")
	if kind == "" {
		return "?", false
	}
	return name[1 : len(name)-1], kind == "method"
}

// cString returns the text up to the first zero byte, as C does.
func cString(s string) string {
	if zero := strings.IndexByte(s, 0); zero >= 0 {
		return s[:zero]
	}
	return s
}

// variableAt returns the name of the variable in a register of a call for an error message, such as "local 'x'" or
// "field 'y'", or "". As in Lua 5.1, the name follows from the last instruction that set the register.
func (l *state) variableAt(f *frame, reg int) string {
	if reg < 0 || reg >= f.closure.proto.registers {
		return ""
	}
	p := f.closure.proto
	l.charge(int64(p.charged(f.pc))/8 + int64(len(p.locals))/8)
	return p.describe(f.pc-1, reg)
}

// charged returns the number of instructions that a search before pc is charged for. Each captured variable counts as
// an instruction. Former releases had one for each, and entries in the log must cost the same in all releases.
func (p *proto) charged(pc int) int {
	n := pc
	for _, i := range p.code[:pc] {
		if i.op() == opClosure {
			n += len(p.protos[i.bx()].captured)
		}
	}
	return n
}

func quoted(kind, name string) string { return kind + " '" + cString(name) + "'" }

func (p *proto) describe(pc, reg int) string {
	if name, is := p.localAt(pc, reg); is {
		return quoted("local", name)
	}
	i := p.setter(pc, reg)
	switch i.op() {
	case opGlobal:
		return quoted("global", p.text(i.b()|constantBit))
	case opGetGlobal:
		return quoted("global", p.text(i.bx()|constantBit))
	case opMove:
		if i.b() < i.a() {
			return p.describe(pc, i.b())
		}
	case opGetField, opLibrary:
		return quoted("field", p.text(i.c()|constantBit))
	case opGetTable:
		return quoted("field", p.text(i.c()))
	case opGetUpval:
		return quoted("upvalue", p.names.list[p.captured[i.b()].name])
	case opSelf:
		return quoted("method", p.text(i.c()))
	}
	return ""
}

// text returns the string constant of an RK operand, or "?" if the operand is anything else.
func (p *proto) text(rk int) string {
	if rk&constantBit != 0 {
		if s, is := p.constants[rk&^constantBit].str(); is {
			return s.s
		}
	}
	return "?"
}

// localAt returns the name of the local variable in a register.
func (p *proto) localAt(pc, reg int) (string, bool) {
	for _, local := range p.locals {
		if local.from > pc {
			break
		}
		if pc < local.to {
			if reg == 0 {
				return local.name, true
			}
			reg--
		}
	}
	return "", false
}

// setter returns the last instruction before pc that sets a register. It assumes that all forward jumps up to pc are
// taken.
func (p *proto) setter(pc, reg int) instr {
	found := instr(0).withOp(opReturn)
	for at := 0; at < pc; at++ {
		i := p.code[at]
		a := i.a()
		changes := a == reg
		switch i.op() {
		case opSetGlobal, opSetUpval, opSetTable, opEq, opLt, opLe, opReturn, opSetList, opClose:
			changes = false
		case opLoadNil:
			changes = a <= reg && reg <= i.b()
		case opSelf:
			changes = a == reg || a+1 == reg
		case opTForLoop:
			changes = reg >= a+2
		case opCall, opTailCall:
			changes = reg >= a
		case opVararg:
			changes = a == reg
		case opJmp, opForLoop, opForPrep:
			changes = changes && i.op() != opJmp
			if to := at + 1 + i.bx(); at < to && to <= pc {
				at = to - 1
			}
		}
		if changes {
			found = i
		}
	}
	return found
}
