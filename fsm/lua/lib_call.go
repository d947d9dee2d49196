package lua

import "strings"

var fieldErr, fieldSource, fieldLine = newConstant("err"), newConstant("source"), newConstant("line")

// basePcall is Redis's replacement of pcall. If the error is a table with the field err, the result is the field.
func basePcall(l *state, args []value) (int, *raised) {
	if len(args) == 0 { // Redis calls the placeholder that it has put before the arguments
		l.push(falseValue)
		l.push(l.newString("attempt to call a boolean value"))
		return 2, nil
	}
	fn, back := l.frame.base, l.checkpoint()
	l.handler = nilValue
	err := l.call(fn, openCount)
	l.handler = back.handler
	if err != nil {
		l.recoverTo(back, fn)
		l.push(falseValue)
		l.push(err.value)
		t, is := err.value.table()
		if !is {
			return 2, nil
		}
		text, err := l.index(value{o: t}, value{o: fieldErr}, noOperand)
		if err != nil {
			return 0, err
		}
		if _, is := l.textOf(text); is {
			l.stack[l.top-1] = text
			return 2, nil
		}
		l.push(text)
		return 3, nil
	}
	return l.prepend(fn, trueValue), nil
}

// prepend inserts v before the values from a slot up to top, and returns the new number of values.
func (l *state) prepend(from int, v value) int {
	n := l.top - from
	l.charge(int64(n) / 8)
	l.needStack(1)
	copy(l.stack[from+1:l.top+1], l.stack[from:l.top])
	l.stack[from] = v
	l.top++
	return n + 1
}

func baseXpcall(l *state, args []value) (int, *raised) {
	if err := l.checkAny(args, 2); err != nil {
		return 0, err
	}
	fn, back := l.frame.base, l.checkpoint()
	l.top = fn + 1
	l.handler = args[1]
	err := l.call(fn, openCount)
	if err != nil {
		v := l.handle(err)
		l.recoverTo(back, fn)
		l.push(falseValue)
		l.push(v)
		return 2, nil
	}
	l.handler = back.handler
	return l.prepend(fn, trueValue), nil
}

// handle calls the handler of the innermost protected call with an error, and returns its result. The frames are still
// those of the error. If the handler fails, handle calls it again with the new error, until the calls nest too deep.
func (l *state) handle(err *raised) value {
	for !err.final {
		if !l.handler.isFunction() {
			return errorInHandling
		}
		v, again := l.callMeta(l.handler, 1, [3]value{err.value})
		if again == nil {
			return v
		}
		err = again
	}
	return err.value
}

func baseErrorHandler(l *state, args []value) (int, *raised) {
	v := arg(args, 1)
	caller := l.frame
	l.frame = caller.prev
	v, err := l.explain(v)
	l.frame = caller
	if err != nil {
		return 0, err
	}
	return l.one(v)
}

// explain converts an error to the table that Redis makes of it. The field err is the text, and source and line are the
// position of the error.
func (l *state) explain(v value) (value, *raised) {
	t, is := v.table()
	if !is {
		text, err := l.toString(v)
		if err != nil {
			return nilValue, err
		}
		s, _ := l.textOf(text)
		t = l.newTable(0, 4)
		t.set(l, value{o: fieldErr}, l.newString("ERR "+s))
	}
	source, line, known := l.position()
	if known {
		self := value{o: t}
		if err := l.setIndex(self, value{o: fieldSource}, l.newString(source), noOperand); err != nil {
			return nilValue, err
		}
		if err := l.setIndex(self, value{o: fieldLine}, number(float64(line)), noOperand); err != nil {
			return nilValue, err
		}
	}
	return value{o: t}, nil
}

// position returns the position of an error: in the running Lua function, or in the caller of the running library
// function.
func (l *state) position() (source string, line int, known bool) {
	level := 0
	if f, ok := l.level(0); ok && f != nil && f.builtin != nil {
		level = 1
	}
	switch f, ok := l.level(level); {
	case !ok:
		return "", 0, false
	case f == nil:
		return "=(tail call)", -1, true
	case f.closure == nil:
		return "=[C]", -1, true
	default:
		return f.closure.proto.source, f.line(), true
	}
}

func (l *state) chunkName(name string) string {
	l.chargeBytes(len(name))
	return cString(name)
}

func baseLoadString(l *state, args []value) (int, *raised) {
	source, err := l.checkString(args, 1)
	if err != nil {
		return 0, err
	}
	name, err := l.optString(args, 2, source)
	if err != nil {
		return 0, err
	}
	return l.load(source, l.chunkName(name))
}

// load compiles a source at run time. DESIGN.md has the measurements behind the charges.
func (l *state) load(source, name string) (int, *raised) {
	l.charge(2 * int64(len(source)))
	l.alloc(64 * int64(len(source)))
	main, err := (*proto)(nil), error(nil)
	if len(source) > l.limits.SourceBytes {
		err = sourceTooLong(len(source), l.limits.SourceBytes)
	} else if strings.HasPrefix(source, "\x1bLua") {
		err = errBinaryChunk
	} else {
		main, err = compileChunk(source, name, l.lib)
	}
	if err != nil {
		l.push(nilValue)
		l.push(l.newString(err.Error()))
		return 2, nil
	}
	return l.one(value{o: l.newClosure(main)})
}

// errBinaryChunk is the error of load for compiled code, which no engine can run safely.
var errBinaryChunk = &syntaxError{text: "attempt to load a binary chunk"}

func baseLoad(l *state, args []value) (int, *raised) {
	if err := l.checkFunction(args, 1); err != nil {
		return 0, err
	}
	name, err := l.optString(args, 2, "=(load)")
	if err != nil {
		return 0, err
	}
	var source strings.Builder
	back := l.checkpoint()
	top := l.top
	for {
		piece, err := l.callMeta(args[0], 0, [3]value{})
		s, isText := l.textOf(piece)
		if err == nil && !piece.isNil() && !isText {
			err = l.fail("reader function must return a string")
		}
		if err != nil {
			// The error is a result of load. As in Lua 5.1, the handler of the enclosing protected call gets it first.
			v := err.value
			if !l.handler.isNil() {
				v = l.handle(err)
			}
			l.recoverTo(back, top)
			l.push(nilValue)
			l.push(v)
			return 2, nil
		}
		if s == "" {
			return l.load(source.String(), l.chunkName(name))
		}
		l.allocString(len(s))
		source.WriteString(s)
	}
}
