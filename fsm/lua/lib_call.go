package lua

import "strings"

// The library functions that call other functions: pcall, xpcall, load; and the handler that adds the
// position to an uncaught error.

var fieldErr, fieldSource, fieldLine = newConstant("err"), newConstant("source"), newConstant("line")

// basePcall is Redis's replacement of pcall: for an error that is a table with an err field, the result is
// the field.
func basePcall(l *state, args []value) (int, *raised) {
	if len(args) == 0 { // Redis's own pcall takes its placeholder for the function
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

// prepend puts v before the values from a slot up to top, and returns the new number of values.
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

// handle passes an error to the handler of the innermost protected call, at the place of the error. The
// handler handles errors in the handler too, until the calls nest too deep.
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

// explain turns an error into the table of Redis's reply: err is the text, source and line say which Lua
// function failed.
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

// position is where an error happened: the running function, or the caller of a
// library function.
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

// load compiles a source at run time. The charges by the byte were measured: see DESIGN.md.
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

// errBinaryChunk: compiled code can break any engine, so there is none.
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
			// Load is protected: the error is a result. But the handler of the
			// protected call around it sees it first.
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
