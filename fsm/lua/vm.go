package lua

// execute runs the Lua function of the current frame and the functions that it calls, until the frame returns. After an
// error the frames are unchanged, so that the error handler can read the position of the error.
//
// execute is one long function, since the operations share local variables. An operation that can call, fail or grow
// the stack stores pc first, and slices the registers again afterwards.
func (l *state) execute() *raised {
newFrame:
	f := l.frame
	p := f.closure.proto
	code, k := p.code, p.constants
	base, pc := f.base, f.pc
	r := l.stack[base : base+p.registers]
	for {
		i := code[pc]
		pc++
		if l.steps--; l.steps < 0 {
			f.pc = pc
			l.outOfSteps()
		}
		switch i.op() {
		case opMove:
			r[i.a()] = r[i.b()]

		case opLoadK:
			r[i.a()] = k[i.bx()]

		case opLoadBool:
			r[i.a()] = boolean(i.b() != 0)
			if i.c() != 0 {
				pc++
			}

		case opLoadNil:
			clear(r[i.a() : i.b()+1])

		case opGetUpval:
			if up := f.closure.up[i.b()]; up.open {
				r[i.a()] = l.stack[up.index]
			} else {
				r[i.a()] = up.v
			}

		case opSetUpval:
			if up := f.closure.up[i.b()]; up.open {
				l.stack[up.index] = r[i.a()]
			} else {
				up.v = r[i.a()]
			}

		case opGlobal:
			r[i.a()] = k[i.c()]

		case opLibrary:
			r[i.a()] = k[i.b()]

		case opGetGlobal:
			f.pc = pc
			v, err := l.global(k[i.bx()])
			if err != nil {
				return err
			}
			r[i.a()] = v

		case opSetGlobal:
			f.pc = pc
			return l.runtimeError("Attempt to modify a readonly table")

		case opGetField:
			key := k[i.c()]
			if t, is := r[i.b()].o.(*table); is {
				if v := t.getStr(l, key.o.(*str)); v.o != nil || t.meta == nil {
					r[i.a()] = v
					continue
				}
			}
			f.pc = pc
			v, err := l.index(r[i.b()], key, base+i.b())
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opGetTable:
			key := operand(r, k, i.c())
			if t, is := r[i.b()].o.(*table); is {
				if _, is := key.o.(numberTag); is {
					if n := int(key.n); uint(n-1) < uint(len(t.array)) && float64(n) == key.n {
						if v := t.array[n-1]; v.o != nil || t.meta == nil {
							r[i.a()] = v
							continue
						}
					}
				}
			}
			f.pc = pc
			v, err := l.index(r[i.b()], *key, base+i.b())
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opSetTable:
			key, v := operand(r, k, i.b()), operand(r, k, i.c())
			if t, is := r[i.a()].o.(*table); is && t.meta == nil && !t.readonly {
				if slot := t.existing(l, key); slot != nil {
					*slot = *v
					t.lacks = 0
					continue
				}
			}
			f.pc = pc
			if err := l.setIndex(r[i.a()], *key, *v, base+i.a()); err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]

		case opNewTable:
			r[i.a()] = value{o: l.newTable(hintedSize(i.b()), hintedSize(i.c()))}

		case opSelf:
			object := r[i.b()]
			r[i.a()+1] = object
			f.pc = pc
			v, err := l.index(object, *operand(r, k, i.c()), base+i.b())
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opAdd:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			if bothNumbers(x, y) {
				if sum := x.n + y.n; sum == sum {
					r[i.a()] = number(sum)
					continue
				}
			}
			f.pc = pc
			v, err := l.arith(opAdd, *x, *y, slotOf(base, i.b()), slotOf(base, i.c()))
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opSub:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			if bothNumbers(x, y) {
				if difference := x.n - y.n; difference == difference {
					r[i.a()] = number(difference)
					continue
				}
			}
			f.pc = pc
			v, err := l.arith(opSub, *x, *y, slotOf(base, i.b()), slotOf(base, i.c()))
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opMul, opDiv, opMod, opPow:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			if bothNumbers(x, y) {
				if i.op() == opPow {
					l.charge(elementarySteps)
				}
				r[i.a()] = number(arithmetic(i.op(), x.n, y.n))
				continue
			}
			f.pc = pc
			v, err := l.arith(i.op(), *x, *y, slotOf(base, i.b()), slotOf(base, i.c()))
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opUnm:
			x := &r[i.b()]
			if _, is := x.o.(numberTag); is {
				r[i.a()] = number(neg(x.n))
				continue
			}
			f.pc = pc
			v, err := l.arith(opUnm, *x, *x, base+i.b(), base+i.b())
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opNot:
			r[i.a()] = boolean(r[i.b()].falsy())

		case opLen:
			f.pc = pc
			v, err := l.length(r[i.b()], base+i.b())
			if err != nil {
				return err
			}
			r[i.a()] = v

		case opConcat:
			f.pc = pc
			v, err := l.concat(base+i.b(), base+i.c())
			if err != nil {
				return err
			}
			r = l.stack[base : base+p.registers]
			r[i.a()] = v

		case opJmp:
			pc += i.bx()

		case opEq:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			equal := x.n == y.n
			if !bothNumbers(x, y) {
				f.pc = pc
				var err *raised
				if equal, err = l.equal(*x, *y); err != nil {
					return err
				}
				r = l.stack[base : base+p.registers]
			}
			if equal == (i.a() != 0) {
				pc += code[pc].bx()
			}
			pc++

		case opLt:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			isLess := x.n < y.n
			if !bothNumbers(x, y) {
				f.pc = pc
				var err *raised
				if isLess, err = l.less(*x, *y); err != nil {
					return err
				}
				r = l.stack[base : base+p.registers]
			}
			if isLess == (i.a() != 0) {
				pc += code[pc].bx()
			}
			pc++

		case opLe:
			x, y := operand(r, k, i.b()), operand(r, k, i.c())
			isLess := x.n <= y.n
			if !bothNumbers(x, y) {
				f.pc = pc
				var err *raised
				if isLess, err = l.lessEqual(*x, *y); err != nil {
					return err
				}
				r = l.stack[base : base+p.registers]
			}
			if isLess == (i.a() != 0) {
				pc += code[pc].bx()
			}
			pc++

		case opTest:
			if r[i.a()].falsy() != (i.c() != 0) {
				pc += code[pc].bx()
			}
			pc++

		case opTestSet:
			if v := r[i.b()]; v.falsy() != (i.c() != 0) {
				r[i.a()] = v
				pc += code[pc].bx()
			}
			pc++

		case opCall:
			fn := base + i.a()
			if n := i.b(); n != 0 {
				l.top = fn + n
			}
			f.pc = pc
			want := i.c() - 1
		again:
			switch callee := l.stack[fn].o.(type) {
			case *closure:
				if err := l.enter(callee, fn, want); err != nil {
					return err
				}
				goto newFrame
			case *builtin:
				if err := l.callBuiltin(callee, fn, want); err != nil {
					return err
				}
				r = l.stack[base : base+p.registers]
				if want != openCount {
					l.top = base + p.registers
				}
			default:
				if err := l.callable(fn); err != nil {
					return err
				}
				goto again
			}

		case opTailCall:
			fn := base + i.a()
			if n := i.b(); n != 0 {
				l.top = fn + n
			}
			f.pc = pc
			if !l.stack[fn].isFunction() {
				if err := l.callable(fn); err != nil {
					return err
				}
			}
			if b, is := l.stack[fn].o.(*builtin); is {
				if err := l.callBuiltin(b, fn, openCount); err != nil {
					return err
				}
				r = l.stack[base : base+p.registers]
				continue // the next instruction is the opReturn
			}
			if err := l.replaceCall(f, fn); err != nil {
				return err
			}
			goto newFrame

		case opReturn:
			from, n := base+i.a(), i.b()-1
			if n == openCount {
				n = l.top - from
			}
			if l.open != nil {
				l.closeFrom(base)
			}
			l.calls--
			l.leave(f, from, n)
			if f.fresh {
				return nil
			}
			if f.want != openCount {
				l.top = l.frame.base + l.frame.closure.proto.registers
			}
			goto newFrame

		case opForPrep:
			f.pc = pc
			if err := l.prepareFor(r[i.a() : i.a()+3]); err != nil {
				return err
			}
			pc += i.bx()

		case opForLoop:
			loop := r[i.a() : i.a()+4]
			step, limit := loop[2].n, loop[1].n
			n := add(loop[0].n, step)
			if (step > 0 && n <= limit) || (step <= 0 && limit <= n) {
				pc += i.bx()
				loop[0].n = n
				loop[3] = number(n)
			}

		case opTForLoop:
			fn := base + i.a() + 3
			copy(l.stack[fn:fn+3], l.stack[fn-3:fn])
			l.top = fn + 3
			f.pc = pc
			if err := l.call(fn, i.c()); err != nil {
				return err
			}
			l.top = base + p.registers
			r = l.stack[base : base+p.registers]
			if control := r[i.a()+3]; !control.isNil() {
				r[i.a()+2] = control
				pc += code[pc].bx()
			}
			pc++

		case opSetList:
			n := i.b()
			if n == 0 {
				n = l.top - (base + i.a()) - 1
				l.top = base + p.registers
			}
			l.setList(r[i.a()].o.(*table), base+i.a()+1, n, (i.c()-1)*elementsPerFlush)

		case opClose:
			l.closeFrom(base + i.a())

		case opClosure:
			c := l.newClosure(p.protos[i.bx()])
			for n, captured := range c.proto.captured {
				if captured.fromReg {
					c.up[n] = l.captureSlot(base + int(captured.index))
				} else {
					c.up[n] = f.closure.up[captured.index]
				}
			}
			r[i.a()] = value{o: c}

		case opVararg:
			n := base - f.fn - 1 - p.params
			if want := i.b() - 1; want != openCount {
				got := copy(r[i.a():i.a()+want], l.stack[base-n:base])
				clear(r[i.a()+got : i.a()+want])
				continue
			}
			from := base + i.a()
			l.charge(int64(n) / 8)
			l.top = from
			l.needStack(n)
			r = l.stack[base : base+p.registers]
			copy(l.stack[from:from+n], l.stack[base-n:base])
			l.top = from + n
		}
	}
}

// operand returns the register or constant of an RK operand.
func operand(r, k []value, rk int) *value {
	if rk&constantBit != 0 {
		return &k[rk&^constantBit]
	}
	return &r[rk]
}

// slotOf returns the stack slot of an RK operand, or noOperand for a constant.
func slotOf(base, rk int) int {
	if rk&constantBit != 0 {
		return noOperand
	}
	return base + rk
}

func bothNumbers(x, y *value) bool {
	_, isX := x.o.(numberTag)
	_, isY := y.o.(numberTag)
	return isX && isY
}

// replaceCall replaces the current call by a call of the Lua function in the slot fn.
func (l *state) replaceCall(f *frame, fn int) *raised {
	if l.open != nil {
		l.closeFrom(f.base)
	}
	n := l.top - fn
	l.charge(int64(n) / 8)
	copy(l.stack[f.fn:f.fn+n], l.stack[fn:l.top])
	l.top = f.fn + n
	l.frame = f.prev
	l.calls--
	want, tails, fresh, at := f.want, f.tails, f.fresh, f.fn
	if err := l.enter(l.stack[at].o.(*closure), at, want); err != nil {
		return err
	}
	l.frame.tails, l.frame.fresh = tails+1, fresh
	return nil
}

// prepareFor converts the three values of a numeric for to numbers, and subtracts the step from the initial value.
func (l *state) prepareFor(loop []value) *raised {
	for n, what := range [...]string{"initial value", "limit", "step"} {
		if _, is := loop[n].o.(numberTag); is {
			continue
		}
		x, ok := l.toNumber(loop[n])
		if !ok {
			return l.runtimeError("'for' " + what + " must be a number")
		}
		loop[n] = number(x)
	}
	loop[0].n = sub(loop[0].n, loop[2].n)
	return nil
}

// setList stores the n values from a slot on in a new table, from the element offset+1 on.
func (l *state) setList(t *table, from, n, offset int) {
	l.charge(int64(n) / 8)
	t.resizeArray(l, offset+n)
	for i := range n {
		t.setInt(l, offset+i+1, l.stack[from+i])
	}
}

func (l *state) newClosure(p *proto) *closure {
	l.alloc(closureBytes + int64(8*len(p.captured)))
	c := &closure{proto: p}
	if len(p.captured) > 0 {
		c.up = make([]*upvalue, len(p.captured))
	}
	return c
}

// global returns a global variable. All but KEYS, ARGV and _G are usually constants: see opGlobal.
func (l *state) global(name value) (value, *raised) {
	switch s := name.o.(*str).s; s {
	case "KEYS":
		return value{o: l.keys}, nil
	case "ARGV":
		return value{o: l.argv}, nil
	case "_G":
		return value{o: l.globalTable()}, nil
	default:
		if v := l.lib.fixed(s); !v.isNil() {
			return v, nil
		}
		return nilValue, l.runtimeError("Script attempted to access nonexistent global variable '" + cString(s) + "'")
	}
}
