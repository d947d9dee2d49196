package lua

import (
	"errors"
	"fmt"

	"github.com/holdfast/holdfast/protocol"
)

// Runner runs programs, one at a time, and keeps memory between runs, so that a short script costs few
// allocations. The state machine has one runner for the log, and others for concurrent reads.
type Runner struct {
	state state
	stack []value
	root  frame
	used  Used
	// words is the buffer of a command's words.
	words      []string
	keys, argv argTable
	spare      [spareTexts]str
}

// argTable is KEYS or ARGV. The memory serves the next run, as no value outlives a run. A long table is
// made anew.
type argTable struct {
	table table
	used  int
	array [8]value
	texts [8]str
}

// Used is the part of the [Limits] that a run took.
type Used struct{ Steps, MemoryBytes int64 }

// NewRunner returns a runner without memory.
func NewRunner() *Runner { return &Runner{stack: make([]value, initialStack), root: frame{fn: -1}} }

// Run runs a program with a new runner.
func (p *Program) Run(env *Env) (protocol.Value, error) { return NewRunner().Run(p, env) }

// Used is what the last run took.
func (r *Runner) Used() Used { return r.used }

// Run runs a program. The value is the reply, converted by the rules of Redis. The reply of a script that
// raises an error is a Value of KindError with a nil error, and the script's writes stay, as in Redis.
//
// The error is not nil if no write of the script may be kept: it wraps [ErrBudget] or [ErrInternal], and
// the value is the error reply to send.
func (r *Runner) Run(p *Program, env *Env) (reply protocol.Value, err error) {
	l := r.begin(env)
	defer func() {
		if failure := recover(); failure != nil {
			if l.inHost {
				panic(failure)
			}
			reply, err = l.stopped(failure)
		}
		r.end()
	}()
	l.keys = r.keys.fill(l, env.Keys)
	l.argv = r.argv.fill(l, env.Args)
	l.stack[0] = value{o: p.main}
	l.top = 1
	if raised := l.call(0, 1); raised != nil {
		return l.uncaught(raised), nil
	}
	return l.toReply(l.stack[0], 0), nil
}

// begin makes the state at the start of a run, the same for a new and an old runner.
func (r *Runner) begin(env *Env) *state {
	limits := env.Limits.withDefaults()
	r.state = state{
		callStack: callStack{stack: r.stack, frame: &r.root, handler: shared.errorHandler},
		budget:    budget{limits: limits, steps: limits.Steps, memory: limits.MemoryBytes, reply: limits.replyBytes()},
		env:       env, lib: shared, lastID: shared.lastID,
		resp: protocol.RESP2, random: randomStart, seed: env.Seed, words: r.words, spare: &r.spare,
	}
	return &r.state
}

// keptFrames is the number of frames kept for the next run.
const keptFrames = 8

// end notes the part of the limits that was used, and drops the script's values.
func (r *Runner) end() {
	l := &r.state
	r.used = Used{Steps: l.limits.Steps - l.steps, MemoryBytes: l.limits.MemoryBytes - l.memory}
	clear(r.stack[:min(l.room, len(r.stack))])
	clear(r.spare[:l.spareUsed])
	if cap(l.words) <= 64 {
		clear(l.words[:cap(l.words)])
		r.words = l.words[:0]
	}
	r.keys.clear()
	r.argv.clear()
	f := r.root.next
	for n := 0; f != nil; n++ {
		f.closure, f.builtin = nil, nil
		if n == keptFrames {
			f.next = nil
		}
		f = f.next
	}
	l.stack, l.env, l.open, l.globals, l.json, l.handler, l.words = nil, nil, nil, nil, nil, nilValue, nil
}

// stopped is the reply of a run that a panic ended: the run exceeded the budget, or met a defect of the
// engine. A defect is recovered because a client that found it could stop every replica.
func (l *state) stopped(failure any) (protocol.Value, error) {
	if over, is := failure.(budgetPanic); is {
		return protocol.Err(fmt.Sprintf("%s, %s script: %s, on %s.", over.err, protocol.Undone, l.env.SHA, l.place())),
			over.err
	}
	err := fmt.Errorf("%w: %v", ErrInternal, failure)
	if cause, is := failure.(error); is {
		err = fmt.Errorf("%w: %w", ErrInternal, cause)
	}
	return protocol.Err(oneLine(err.Error())), err
}

// place is the current source and line of the innermost Lua function.
func (l *state) place() string {
	for f := l.frame; f != nil; f = f.prev {
		if f.closure != nil && f.pc > 0 {
			return fmt.Sprintf("%s:%d", f.closure.proto.source, f.line())
		}
	}
	return "@user_script:1"
}

// uncaught is the reply for an error that nothing caught.
func (l *state) uncaught(r *raised) protocol.Value {
	v, again := value{}, r
	if !r.final {
		v, again = l.explain(r.value)
	}
	t, is := v.table()
	if again != nil || !is {
		return protocol.Err("Error running script " + l.env.SHA + ", error in error handling")
	}
	text, hasText := l.plainField(t, fieldErr)
	if !hasText {
		text = "ERR unknown error"
	}
	source, hasSource := l.plainField(t, fieldSource)
	line, hasLine := l.plainField(t, fieldLine)
	if hasSource && hasLine {
		text += " script: " + l.env.SHA + ", on " + source + ":" + line + "."
	}
	l.stands(len(text))
	return protocol.ErrValue(oneLine(text))
}

// plainField is a field of an error table as text, up to a zero byte.
func (l *state) plainField(t *table, field *str) (string, bool) {
	v, err := l.index(value{o: t}, value{o: field}, noOperand)
	if err != nil {
		return "", false
	}
	s, is := l.textOf(v)
	return cString(s), is
}

// fill makes a table of some strings.
func (a *argTable) fill(l *state, texts []string) *table {
	n := len(texts)
	l.alloc(tableBytes + int64(n)*(slotBytes+stringBytes))
	l.charge(int64(n) / 4)
	size := 0
	for size < n {
		size = max(2*size, 1)
	}
	array, strs := a.array[:], a.texts[:]
	if n > len(a.array) {
		array, strs = make([]value, size), make([]str, n)
	}
	for i, text := range texts {
		strs[i] = str{s: text}
		array[i] = value{o: &strs[i]}
	}
	a.table, a.used = table{array: array[:size:size]}, min(n, len(a.array))
	return &a.table
}

func (a *argTable) clear() {
	a.table = table{}
	clear(a.array[:a.used])
	clear(a.texts[:a.used])
}

// Limits bounds a script. Replicas must agree on them: two nodes with different limits diverge.
type Limits struct {
	// SourceBytes is the longest source that is compiled, by [Compile] and by
	// loadstring.
	SourceBytes int
	// Steps is how many steps a run may take. An instruction of the virtual
	// machine is one; what an instruction or a library function does in a loop is
	// charged in proportion.
	Steps int64
	// MemoryBytes is how many bytes a run may allocate, by the formulas of
	// DESIGN.md. What becomes garbage is not given back, but for what the engine itself
	// drops: the smaller part of a table that grew, the buffer of a string that is made. Its
	// reply may stand for as many bytes again, up to 64 MiB, be it of strings that are there only once.
	MemoryBytes int64
}

// DefaultLimits are the limits of this release. DESIGN.md has the
// measurements behind them.
func DefaultLimits() Limits { return LimitsOf(DefaultSteps) }

// DefaultSteps lets the housekeeping scripts of stock libraries pass 100,000 elements.
const DefaultSteps = 32_000_000

const (
	leastMemory = 64 << 20 // what any script may allocate, and the most that a reply may stand for
	stepMemory  = 4        // what a script may allocate for each of its steps
)

// LimitsOf returns the limits of scripts that may take so many steps.
func LimitsOf(steps int64) Limits {
	return Limits{SourceBytes: 1 << 20, Steps: steps, MemoryBytes: max(leastMemory, steps*stepMemory)}
}

// ErrBudget is in the chain of the error of a run that was ended because it
// took more steps or memory than its [Limits] allow.
var ErrBudget = errors.New("script is over its budget")

// The resources of a [BudgetError].
const (
	Steps  = "steps"
	Memory = "bytes of memory"
)

// BudgetError is the error of a run that was ended by its limits. Nothing of
// what the script did may be kept.
type BudgetError struct {
	// Resource is what ran out: [Steps], [Memory] or "bytes of reply".
	Resource string
	Limit    int64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("script is over its budget of %d %s (--%s)", e.Limit, e.Resource, protocol.ScriptStepsFlag)
}

// Unwrap makes errors.Is(err, ErrBudget) true.
func (e *BudgetError) Unwrap() error { return ErrBudget }

// ErrInternal is in the chain of the error of a run that met a defect of this
// engine. It is the same on every replica. Nothing of what the script did may
// be kept.
var ErrInternal = errors.New("script engine failed")

// CompileError is the error of a source that is not a script.
type CompileError struct {
	// Text is the whole text of the error reply: "ERR Error compiling script (new
	// function): user_script:1: …".
	Text string
}

func (e *CompileError) Error() string { return e.Text }

// replyBytes is what a reply may stand for.
func (l Limits) replyBytes() int64 { return min(l.MemoryBytes, leastMemory) }

// withDefaults returns l with defaults where it has zeros.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.SourceBytes == 0 {
		l.SourceBytes = d.SourceBytes
	}
	if l.Steps == 0 {
		l.Steps = d.Steps
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = d.MemoryBytes
	}
	return l
}
