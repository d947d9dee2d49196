package lua

// state is a running script: the stack, the calls, and the rest of the budget. One goroutine uses it.
type state struct {
	callStack
	budget
	lastID uint32
	env    *Env
	lib    *library
	// inHost is set while the host runs, whose panics are not the engine's.
	inHost bool
	resp   int
	// keys, argv and globals are per run, globals made at the first use.
	keys, argv, globals *table
	// seed is the state of math.random, or random if seed is 0.
	seed, random uint64
	json         *jsonConfig
	words        []string
	// spare are strings that are used before any is allocated.
	spare     *[spareTexts]str
	spareUsed int
}

// callStack is the registers and the calls of a run.
type callStack struct {
	// stack holds the registers of all calls. It moves when it grows: take a new slice of it after
	// anything that may call a function.
	stack []value
	// room is the number of slots asked for, at least the most ever in use.
	room int
	// top is the first slot that no call uses. While a Lua function runs, top is the end of the
	// function's registers, or of an open number of values.
	top   int
	frame *frame
	// calls is the number of Lua functions being called, peak the most so far.
	calls, peak int
	// open are the captured variables that live in the stack, the highest first.
	open *upvalue
	// goDepth counts calls that nest in Go: metamethods, pcall, comparison functions.
	goDepth int
	// handler is the error handler of the innermost protected call; nil in a pcall.
	handler value
}

// budget is what is left of the limits of a run.
type budget struct {
	steps, memory int64
	// reply is the number of bytes that the reply may yet stand for.
	reply  int64
	limits Limits
}

// frame is one call. The chain of frames is kept for later calls.
type frame struct {
	closure *closure // nil for a builtin
	builtin *builtin
	prev    *frame
	next    *frame
	// fn is the function's slot, where the results go, and base the first register.
	fn, base int
	// pc is the next instruction, stored before any instruction that can fail or call.
	pc int
	// want is the number of results that the caller wants, or openCount.
	want int
	// tails counts the calls that a tail call replaced.
	tails int
	// fresh: the frame was entered from Go, and the return ends execute.
	fresh bool
}

// Bounds of a run that are no budgets.
const (
	// maxCalls is the depth to which calls of Lua functions nest.
	maxCalls = 16382
	// maxGoDepth is the depth to which calls nest that need Go's stack, as in Lua 5.1.
	maxGoDepth = 200
	// maxResults is the most values that a library function takes or gives at once.
	maxResults = 8000
	// initialStack is the number of slots that a run begins with, and keeps for the next run.
	initialStack = 128
	// frameBytes is the charge for a call deeper than any before.
	frameBytes = 128
	// spareTexts is the number of strings of a run without an allocation.
	spareTexts = 16
	// spareSlots is the room on the stack that a builtin or a metamethod call finds.
	spareSlots = 24
)

// budgetPanic ends a run over the budget. A panic cannot be caught or delayed by a pcall, a metamethod or
// a library function. Run recovers it.
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

// alloc takes n bytes from the budget, before they are allocated.
func (l *state) alloc(n int64) {
	if l.memory -= n; l.memory < 0 {
		l.memory = 0
		panic(budgetPanic{&BudgetError{Resource: Memory, Limit: l.limits.MemoryBytes}})
	}
}

// release gives back the charge for memory that the engine has just dropped, and that no value can hold
// on to. So the charge is the same on all replicas.
func (l *state) release(n int64) { l.memory += n }

// stands charges the reply for a string of n bytes, at each place where the string stands: each is sent.
func (l *state) stands(n int) {
	if l.reply -= int64(n); l.reply < 0 {
		l.reply = 0
		panic(budgetPanic{&BudgetError{Resource: "bytes of reply", Limit: l.limits.replyBytes()}})
	}
}

// chargeBytes charges for looking at, or moving, n bytes.
func (l *state) chargeBytes(n int) {
	if n >= 64 {
		l.charge(int64(n) >> 6)
	}
}

// chargeHops charges for n short steps of a loop. The first few are free.
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

// newString makes a string of this run of a text that exists already.
func (l *state) newString(s string) value {
	l.alloc(stringBytes + int64(len(s)))
	return l.text(s)
}

// stringOf makes a string of bytes.
func (l *state) stringOf(b []byte) value {
	l.allocString(len(b))
	return l.text(string(b))
}

// text makes a string value of a text that has been charged. The first strings of a run use memory that
// the next run uses again: no value outlives a run.
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

// identity is the number of a table or function within a run, given at the first question. The number
// stands in for the address that Lua would show and order by.
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

// needStack makes sure that n slots from top on exist.
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
