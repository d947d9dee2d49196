package lua

// Error messages name variables: "local 'x'", "field 'y'". The name is found as Lua 5.1
// finds it: by looking for the instruction that put the value into its register.

// variableAt describes what stands in a register of a call at its current
// instruction, or returns "".
func (l *state) variableAt(f *frame, reg int) string {
	if reg < 0 || reg >= f.closure.proto.registers {
		return ""
	}
	p := f.closure.proto
	l.charge(int64(p.charged(f.pc))/8 + int64(len(p.locals))/8)
	return p.describe(f.pc-1, reg)
}

// charged is the number of instructions before pc that a look at them counts as. A captured variable counts as one,
// since it was one when entries that are in a log were applied.
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

// text is the string that an RK operand is, or "?".
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

// setter returns the last instruction before pc that changes a register, on the way that
// takes every jump forward.
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
