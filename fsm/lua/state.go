package lua

// state is the state of a run.
type state struct {
	callStack
	budget
	lastID uint32
	env    *Env
	lib    *library
	inHost bool // the host runs, so a panic is not the engine's
	resp   int
	// keys, argv and globals are the tables of this run. globals is nil until the first use.
	keys, argv, globals *table
	// seed is the state of SplitMix64, or 0 if math.random uses lrand48, whose state is random.
	seed, random uint64
	json         *jsonConfig
	words        []string
	// spare is the memory of the first strings of the run, and spareUsed their number.
	spare     *[spareTexts]str
	spareUsed int
}

// callStack has the registers and the calls of a run.
type callStack struct {
	// stack has the registers of all calls. A call may replace it by a longer one, so slices of it are invalid after any
	// call.
	stack []value
	// room is the number of slots that the calls have needed so far. The first room slots must exist and be charged.
	room int
	// top is the end of the slots in use. In a Lua function it is the end of the registers, or of an open number of
	// values.
	top   int
	frame *frame
	// calls is the number of nested calls of Lua functions, and peak its maximum so far.
	calls, peak int
	// open is the list of the captured variables in the stack, the highest slot first.
	open *upvalue
	// goDepth is the number of calls that nest in Go: metamethods, pcall, comparison functions.
	goDepth int
	// handler is the error handler of the innermost protected call, or nil in a pcall.
	handler value
}

// budget is the rest of the limits of a run.
type budget struct {
	steps, memory int64
	reply         int64 // the bytes of strings that the reply may still have
	limits        Limits
}

// frame is a call. Later calls reuse the frames of ended calls.
type frame struct {
	closure *closure // nil for a builtin
	builtin *builtin
	prev    *frame
	next    *frame
	// fn is the slot of the function and of the first result. base is the first register.
	fn, base int
	// pc is the index of the next instruction. Instructions that can fail or call store it first.
	pc int
	// want is the number of results that the caller wants, or openCount.
	want int
	// tails is the number of calls that tail calls have replaced.
	tails int
	// fresh is set if Go entered the frame. The return of the frame then ends execute.
	fresh bool
}

// The limits of a run that no caller sets.
const (
	// maxCalls limits nested calls of Lua functions.
	maxCalls = 16382
	// maxGoDepth limits nested calls that use Go's stack, as in Lua 5.1.
	maxGoDepth = 200
	// maxResults limits the arguments and results of a library function.
	maxResults = 8000
	// initialStack is the number of slots at the start of a run. The next run reuses them.
	initialStack = 128
	// frameBytes is the charge for a frame.
	frameBytes = 128
	// spareTexts is the number of strings that a run makes before it allocates one.
	spareTexts = 16
	// spareSlots is the number of free slots at the start of a builtin or a metamethod call.
	spareSlots = 24
)

// budgetPanic ends a run that exceeds its budget. It is a panic, so no pcall, metamethod or library function can catch
// or delay it. Run recovers it.
type budgetPanic struct{ err *BudgetError }

// charge charges n steps.
func (l *state) charge(n int64) {
	if l.steps -= n; l.steps < 0 {
		l.outOfSteps()
	}
}

func (l *state) outOfSteps() {
	l.steps = 0
	panic(budgetPanic{&BudgetError{Resource: Steps, Limit: l.limits.Steps}})
}

// alloc charges n bytes, before the caller allocates them.
func (l *state) alloc(n int64) {
	if l.memory -= n; l.memory < 0 {
		l.memory = 0
		panic(budgetPanic{&BudgetError{Resource: Memory, Limit: l.limits.MemoryBytes}})
	}
}

// release returns the charge for memory that the engine has dropped. No value refers to the memory, so the charge is
// the same on all replicas.
func (l *state) release(n int64) { l.memory += n }

// chargeReply charges the reply for an occurrence of a string of n bytes.
func (l *state) chargeReply(n int) {
	if l.reply -= int64(n); l.reply < 0 {
		l.reply = 0
		panic(budgetPanic{&BudgetError{Resource: "bytes of reply", Limit: l.limits.replyBytes()}})
	}
}

// chargeBytes charges for reading or copying n bytes.
func (l *state) chargeBytes(n int) {
	if n >= 64 {
		l.charge(int64(n) >> 6)
	}
}

// chargeHops charges for n iterations of a short loop. Up to 4 are free.
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

// newString returns a string with an existing text. It charges memory for the text but no copying.
func (l *state) newString(s string) value {
	l.alloc(stringBytes + int64(len(s)))
	return l.text(s)
}

// stringOf returns a string with a copy of b.
func (l *state) stringOf(b []byte) value {
	l.allocString(len(b))
	return l.text(string(b))
}

// text returns a string with a text that has been charged. The first strings of a run are in spare. The next run reuses
// spare, since no value outlives a run.
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

// identity returns the number of a table or function, which is unique in a run. It replaces the address that Lua shows
// and hashes. The first call for a value issues its number.
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

// needStack grows the stack to have n slots from top on.
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

// push appends a value to the stack.
//
// Requires: a slot is free. A builtin has spareSlots at its start.
func (l *state) push(v value) {
	l.stack[l.top] = v
	l.top++
}

// captureSlot returns the captured variable of a stack slot, and adds it if no closure has captured the slot yet.
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

// closeFrom closes the captured variables from a slot on: it moves their values out of the stack.
func (l *state) closeFrom(index int) {
	for l.open != nil && l.open.index >= index {
		up := l.open
		l.open = up.next
		up.v, up.open, up.next = l.stack[up.index], false, nil
	}
}
