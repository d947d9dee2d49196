package lua

// pushFrame enters a call.
func (l *state) pushFrame() *frame {
	f := l.frame.next
	if f == nil {
		f = &frame{prev: l.frame}
		l.frame.next = f
	}
	l.frame = f
	return f
}

// enter begins a call of a Lua function in the slot fn, whose arguments reach up to top.
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

// spreadVarargs leaves the arguments in place and copies the named arguments behind all, so that "..."
// finds the others before the base.
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

// argTable is the local variable arg of a function that has "..." without using it.
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

// leave ends a call whose n results begin at a slot: the results move to the function's slot, as many as
// the caller wants, and top is set behind them.
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

// callBuiltin calls a library function in the slot fn.
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

// callable replaces a value that is no function by its __call metamethod, and puts the value before the
// arguments.
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

// call calls the function in the slot fn with the arguments up to top, from
// Go. The results are at fn; top is behind them.
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

// tooDeep is the error of nesting too deep. An error handler may nest a little deeper.
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

// checkpoint is the place that a protected call goes back to.
type checkpoint struct {
	frame          *frame
	calls, goDepth int
	handler        value
}

func (l *state) checkpoint() checkpoint {
	return checkpoint{frame: l.frame, calls: l.calls, goDepth: l.goDepth, handler: l.handler}
}

// recoverTo undoes the calls since a checkpoint, after an error. The stack is
// free from top on.
func (l *state) recoverTo(c checkpoint, top int) {
	l.closeFrom(top)
	l.frame, l.calls, l.goDepth, l.top = c.frame, c.calls, c.goDepth, top
	l.handler = c.handler
}
