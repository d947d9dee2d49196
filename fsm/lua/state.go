package lua

// state is a running script: its stack, its calls, and what is left of its
// budget. One goroutine uses it.
type state struct {
	// stack holds the registers of all calls. It moves when it grows: whoever keeps a
	// slice of it takes a new one after anything that may call a function.
	stack []value
	// room is how many slots have been asked for, at least what was ever in use.
	room int
	// top is the first slot that no call uses. While a Lua function runs, it is the end of
	// its registers, but for an open number of values, whose end it is.
	top   int
	frame *frame
	// calls is how many Lua functions are being called, peak the most there were.
	calls, peak int
	// open are the captured variables that live in the stack, the highest first.
	open *upvalue
	// steps and memory are what is left of the budget.
	steps, memory int64
	// reply is how many bytes the reply may yet stand for.
	reply  int64
	limits Limits
	// goDepth counts calls that nest in Go: metamethods, pcall, comparison
	// functions.
	goDepth int
	lastID  uint32
	// handler is the error handler of the innermost protected call; nil in a pcall.
	handler value
	env     *Env
	lib     *library
	// inHost is set while the host runs, whose panics are not ours.
	inHost bool
	resp   int
	// keys, argv and globals are per run, the last made when it is first needed.
	keys, argv, globals *table
	// seed is where math.random stands, random where it does once it is 0.
	seed, random uint64
	json         *jsonConfig
	words        []string
	// spare are strings to be used before any is allocated.
	spare     *[spareTexts]str
	spareUsed int
}

// frame is one call. Frames form a chain that is kept for later calls.
type frame struct {
	closure *closure // nil for a builtin
	builtin *builtin
	prev    *frame
	next    *frame
	// fn is the function's slot, where its results go; base its first register.
	fn, base int
	// pc is the next instruction. It is stored before whatever can fail or call.
	pc int
	// want is how many results the caller wants, or openCount.
	want int
	// tails counts the calls that a tail call replaced.
	tails int
	// fresh: the frame was entered from Go, and its return ends execute.
	fresh bool
}

// Bounds of a run that are no budgets.
const (
	// maxCalls is how deep calls of Lua functions nest.
	maxCalls = 16382
	// maxGoDepth is how deep calls nest that need Go's stack, as in Lua 5.1.
	maxGoDepth = 200
	// maxResults is how many values a library function takes or gives at once.
	maxResults = 8000
	// initialStack is how many slots a run begins with, and keeps for the next.
	initialStack = 128
	// frameBytes is what a call is charged, when it is deeper than any before.
	frameBytes = 128
	// spareTexts is how many strings of a run need no allocation.
	spareTexts = 16
	// spareSlots is how much room on the stack a builtin finds, and a metamethod call.
	spareSlots = 24
)

// budgetPanic ends a run that is over its budget. It is a panic so that no pcall, no
// metamethod and no library function can catch or delay it; Run recovers it.
type budgetPanic struct{ err *BudgetError }

// charge takes n steps from the budget.
func (l *state) charge(n int64) {
	if l.steps -= n; l.steps < 0 {
		l.outOfSteps()
	}
}

func (l *state) outOfSteps() {
	l.steps = 0
	panic(budgetPanic{&BudgetError{Resource: Steps, Limit: l.limits.Steps}})
}

// alloc takes n bytes from the budget. Call it before allocating them.
func (l *state) alloc(n int64) {
	if l.memory -= n; l.memory < 0 {
		l.memory = 0
		panic(budgetPanic{&BudgetError{Resource: Memory, Limit: l.limits.MemoryBytes}})
	}
}

// release gives back what was taken for memory that the engine has just dropped. Only
// what no value can hold on to is given back: so it is the same on all replicas.
func (l *state) release(n int64) {
	if !l.env.Legacy {
		l.memory += n
	}
}

// stands notes that the reply has a string of n bytes. The string may be there once and
// stand in the reply many times; what is sent is each of them.
func (l *state) stands(n int) {
	if l.reply -= int64(n); l.reply < 0 && !l.env.Legacy {
		l.reply = 0
		panic(budgetPanic{&BudgetError{Resource: "bytes of reply", Limit: l.limits.MemoryBytes}})
	}
}

// chargeBytes charges for looking at, or moving, n bytes.
func (l *state) chargeBytes(n int) {
	if n >= 64 {
		l.charge(int64(n) >> 6)
	}
}

// scan is chargeBytes for what entries before version 3 looked at for nothing.
func (l *state) scan(n int) {
	if !l.env.Legacy {
		l.chargeBytes(n)
	}
}

// chargeHops charges for n short steps of a loop, a few of which are free.
func (l *state) chargeHops(n int) {
	if n > 4 {
		l.charge(int64(n) >> 2)
	}
}

// allocString charges for a new string of n bytes, and for filling it.
func (l *state) allocString(n int) {
	l.alloc(stringBytes + int64(n))
	l.chargeBytes(n)
}

// newString makes a string of this run whose text exists already.
func (l *state) newString(s string) value {
	l.alloc(stringBytes + int64(len(s)))
	return l.text(s)
}

// stringOf makes a string of bytes.
func (l *state) stringOf(b []byte) value {
	l.allocString(len(b))
	return l.text(string(b))
}

// text makes a string value of a text that has been charged. The first of a run use
// memory that serves the next run again: no value outlives its run.
func (l *state) text(s string) value {
	if l.spare == nil || l.spareUsed == len(l.spare) {
		return value{o: &str{s: s}}
	}
	x := &l.spare[l.spareUsed]
	l.spareUsed++
	x.s, x.hash = s, 0
	return value{o: x}
}

// sameText compares two strings, and charges for long ones.
func (l *state) sameText(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	l.chargeBytes(len(a))
	return a == b
}

// identity is the number of a table or function within its run, given when it is first
// asked for. It stands in for the address that Lua would show and order by.
func (l *state) identity(v value) uint32 {
	var id *uint32
	switch x := v.o.(type) {
	case *table:
		id = &x.id
	case *closure:
		id = &x.id
	case *builtin:
		return x.id
	default:
		return 0
	}
	if *id == 0 {
		l.lastID++
		*id = l.lastID
	}
	return *id
}

// needStack sees that n slots from top on exist.
func (l *state) needStack(n int) {
	if need := l.top + n; need > l.room {
		l.growStack(need)
	}
}

func (l *state) growStack(need int) {
	l.room = (need + 31) &^ 31
	if l.room <= len(l.stack) {
		return
	}
	l.room = max(2*len(l.stack), l.room)
	l.alloc(int64(l.room) * slotBytes)
	stack := make([]value, l.room)
	copy(stack, l.stack)
	if len(l.stack) > initialStack {
		l.release(int64(len(l.stack)) * slotBytes)
	}
	l.stack = stack
}

// push puts a value on the stack. Requires: there is room; a builtin has spareSlots.
func (l *state) push(v value) {
	l.stack[l.top] = v
	l.top++
}

// captureSlot returns the captured variable of a stack slot.
func (l *state) captureSlot(index int) *upvalue {
	at, hops := &l.open, 0
	for *at != nil && (*at).index >= index {
		if (*at).index == index {
			return *at
		}
		at = &(*at).next
		hops++
	}
	l.chargeHops(hops)
	l.alloc(upvalueBytes)
	up := &upvalue{open: true, index: index, next: *at}
	*at = up
	return up
}

// closeFrom moves the captured variables from a slot on out of the stack.
func (l *state) closeFrom(index int) {
	for l.open != nil && l.open.index >= index {
		up := l.open
		l.open = up.next
		up.v, up.open, up.next = l.stack[up.index], false, nil
	}
}
