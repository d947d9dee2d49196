package lua

// pushFrame appends a frame to the chain, or reuses one of an earlier call, and makes it the current frame.
func (l *state) pushFrame() *frame {
	f := l.frame.next
	if f == nil {
		f = &frame{prev: l.frame}
		l.frame.next = f
	}
	l.frame = f
	return f
}

// enter begins a call of a Lua function. The function is in the slot fn, and its arguments follow up to top.
func (l *state) enter(c *closure, fn, want int) *raised {
	if l.calls >= maxCalls {
		return l.runtimeError("stack overflow")
	}
	if l.calls++; l.calls > l.peak {
		l.peak = l.calls
		l.alloc(frameBytes)
	}
	p := c.proto
	base, given := fn+1, l.top-fn-1
	l.needStack(p.registers + p.params + spareSlots)
	if p.vararg != fixedArgs {
		base, given = l.spreadVarargs(p, given)
	} else if given > p.params {
		given = p.params
	}
	end := base + p.registers
	clear(l.stack[base+given : end])
	f := l.pushFrame()
	f.closure, f.builtin, f.fn, f.base, f.pc, f.want, f.tails, f.fresh = c, nil, fn, base, 0, want, 0, false
	l.top = end
	return nil
}

// spreadVarargs moves the named arguments behind all arguments. The new base follows the slots of the old arguments, so
// opVararg finds the surplus arguments in the slots before the base.
func (l *state) spreadVarargs(p *proto, given int) (base, filled int) {
	first := l.top - given
	var arg value
	if p.vararg == tableArgs {
		arg = value{o: l.argTable(first, p.params, given)}
	}
	for given < p.params {
		l.push(nilValue)
		given++
	}
	base = l.top
	for i := range p.params {
		l.push(l.stack[first+i])
		l.stack[first+i] = nilValue
	}
	if p.vararg == tableArgs {
		l.push(arg)
		return base, p.params + 1
	}
	return base, p.params
}

// argTable returns the value of the local variable arg: see [tableArgs].
func (l *state) argTable(first, params, given int) *table {
	n := max(given-params, 0)
	l.charge(int64(n) / 4)
	t := l.newTable(n, 1)
	for i := range n {
		t.setInt(l, i+1, l.stack[first+params+i])
	}
	t.set(l, value{o: fieldN}, number(float64(n)))
	return t
}

var fieldN = newConstant("n")

// leave ends a call that has n results from a slot on. It moves as many results as the caller wants to the function's
// slot, and sets top behind them.
func (l *state) leave(f *frame, from, n int) {
	to := f.fn
	if f.want == openCount || f.want <= n {
		if f.want != openCount {
			n = f.want
		}
		copy(l.stack[to:to+n], l.stack[from:from+n])
	} else {
		copy(l.stack[to:to+n], l.stack[from:from+n])
		clear(l.stack[to+n : to+f.want])
		n = f.want
	}
	l.top = to + n
	l.frame = f.prev
}

// callBuiltin calls a library function. The function is in the slot fn, and its arguments follow up to top.
func (l *state) callBuiltin(b *builtin, fn, want int) *raised {
	l.needStack(spareSlots)
	f := l.pushFrame()
	f.closure, f.builtin, f.fn, f.base, f.want, f.tails, f.fresh = nil, b, fn, fn+1, want, 0, false
	n, err := b.fn(l, l.stack[fn+1:l.top])
	if err != nil {
		return err
	}
	if want > n {
		l.needStack(want)
	}
	l.leave(f, l.top-n, n)
	return nil
}

// callable replaces a value in the slot fn by its __call metamethod, and inserts the value as the first argument.
func (l *state) callable(fn int) *raised {
	v := l.stack[fn]
	m := l.metamethod(v, eventCall)
	if !m.isFunction() {
		return l.typeError(fn, v, "call")
	}
	l.needStack(1 + spareSlots)
	l.charge(int64(l.top-fn) / 8)
	copy(l.stack[fn+1:l.top+1], l.stack[fn:l.top])
	l.top++
	l.stack[fn] = m
	return nil
}

// call calls the function in the slot fn with the arguments up to top, and returns when the call has ended. The results
// are in the slots from fn up to top.
func (l *state) call(fn, want int) *raised {
	l.goDepth++
	if l.goDepth >= maxGoDepth {
		if err := l.tooDeep(); err != nil {
			return err
		}
	}
	l.charge(1)
	if !l.stack[fn].isFunction() {
		if err := l.callable(fn); err != nil {
			return err
		}
	}
	var err *raised
	switch f := l.stack[fn].o.(type) {
	case *closure:
		if err = l.enter(f, fn, want); err == nil {
			l.frame.fresh = true
			err = l.execute()
		}
	case *builtin:
		err = l.callBuiltin(f, fn, want)
	}
	if err == nil {
		l.goDepth--
	}
	return err
}

// tooDeep returns the error for calls that nest too deep in Go. Between the two limits it returns nil, since an error
// handler may nest deeper than the call that failed.
func (l *state) tooDeep() *raised {
	switch {
	case l.goDepth == maxGoDepth:
		return l.runtimeError("C stack overflow")
	case l.goDepth >= maxGoDepth+maxGoDepth/8:
		return &raised{value: errorInHandling, final: true}
	default:
		return nil
	}
}

var errorInHandling = constant("error in error handling")

// checkpoint has the state to which a protected call returns after an error.
type checkpoint struct {
	frame          *frame
	calls, goDepth int
	handler        value
}

func (l *state) checkpoint() checkpoint {
	return checkpoint{frame: l.frame, calls: l.calls, goDepth: l.goDepth, handler: l.handler}
}

// recoverTo returns to a checkpoint after an error, and sets top.
func (l *state) recoverTo(c checkpoint, top int) {
	l.closeFrom(top)
	l.frame, l.calls, l.goDepth, l.top = c.frame, c.calls, c.goDepth, top
	l.handler = c.handler
}
