package lua

import (
	"errors"
	"fmt"

	"github.com/holdfast/holdfast/protocol"
)

// Runner runs programs, one at a time. Runs reuse the memory of earlier runs, so a short script allocates little.
type Runner struct {
	state      state
	stack      []value
	root       frame
	used       Used
	words      []string // the buffer of state.words
	keys, argv argTable
	spare      [spareTexts]str
}

// argTable is the table KEYS or ARGV. The next run reuses the memory, since no value outlives a run. A table that is
// longer than the arrays gets memory of its own.
type argTable struct {
	table table
	used  int
	array [8]value
	texts [8]str
}

// Used is the part of the [Limits] that a run has used.
type Used struct{ Steps, MemoryBytes int64 }

// NewRunner returns a new runner.
func NewRunner() *Runner { return &Runner{stack: make([]value, initialStack), root: frame{fn: -1}} }

// Run runs a program with a new runner.
func (p *Program) Run(env *Env) (protocol.Value, error) { return NewRunner().Run(p, env) }

// Used returns the usage of the last run.
func (r *Runner) Used() Used { return r.used }

// Run runs a program and returns the reply, converted by the rules of Redis. If the script raises an error, the reply
// is a Value of KindError, err is nil, and the caller keeps the script's writes, as Redis does.
//
// If err is not nil, it wraps [ErrBudget] or [ErrInternal], the caller must undo the script's writes, and the reply is
// the error to send.
func (r *Runner) Run(p *Program, env *Env) (reply protocol.Value, err error) {
	l := r.begin(env)
	defer func() {
		if failure := recover(); failure != nil {
			if l.inHost {
				panic(failure)
			}
			reply, err = l.panicReply(failure)
		}
		r.end()
	}()
	l.keys = r.keys.fill(l, env.Keys)
	l.argv = r.argv.fill(l, env.Args)
	l.stack[0] = value{o: p.main}
	l.top = 1
	if raised := l.call(0, 1); raised != nil {
		return l.uncaughtReply(raised), nil
	}
	return l.toReply(l.stack[0], 0), nil
}

// begin resets the state for a run. Earlier runs do not affect it.
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

// keptFrames is the number of frames that the next run can reuse.
const keptFrames = 8

// end records the usage of the run, and drops the references to the script's values.
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

// panicReply returns the reply and the error of a run that ended with a panic. The panic was raised by the budget or by
// a defect of the engine. A defect is recovered, since its script would otherwise crash all replicas.
func (l *state) panicReply(failure any) (protocol.Value, error) {
	if over, is := failure.(budgetPanic); is {
		return protocol.Err(fmt.Sprintf("%s, %s script: %s, on %s.", over.err, protocol.Undone, l.env.SHA,
			l.currentLine())), over.err
	}
	err := fmt.Errorf("%w: %v", ErrInternal, failure)
	if cause, is := failure.(error); is {
		err = fmt.Errorf("%w: %w", ErrInternal, cause)
	}
	return protocol.Err(oneLine(err.Error())), err
}

// currentLine returns the source and the line of the innermost Lua function, as "source:line".
func (l *state) currentLine() string {
	for f := l.frame; f != nil; f = f.prev {
		if f.closure != nil && f.pc > 0 {
			return fmt.Sprintf("%s:%d", f.closure.proto.source, f.line())
		}
	}
	return "@user_script:1"
}

// uncaughtReply returns the reply of a script that ended with an error.
func (l *state) uncaughtReply(r *raised) protocol.Value {
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
	l.chargeReply(len(text))
	return protocol.ErrValue(oneLine(text))
}

// plainField returns a field of an error table as text, up to the first zero byte.
func (l *state) plainField(t *table, field *str) (string, bool) {
	v, err := l.index(value{o: t}, value{o: field}, noOperand)
	if err != nil {
		return "", false
	}
	s, is := l.textOf(v)
	return cString(s), is
}

// fill returns a table with these strings.
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

// Limits limits a script. All nodes must have the same limits, since their states would otherwise diverge.
type Limits struct {
	// SourceBytes limits a source that [Compile] or loadstring compiles.
	SourceBytes int
	// Steps limits the steps of a run. An instruction of the virtual machine is one step. A loop inside of an instruction
	// or a library function is charged in proportion to its length.
	Steps int64
	// MemoryBytes limits the bytes that a run allocates, by the formulas of DESIGN.md. Garbage stays charged, except for
	// the memory that the engine drops by itself: the old parts of a table that grew, and the buffer of a new string. The
	// reply has a limit of the same size, but of 64 MiB at most. Each occurrence of a string counts for that limit.
	MemoryBytes int64
}

// DefaultLimits returns the limits of this release. DESIGN.md has the measurements behind them.
func DefaultLimits() Limits { return LimitsOf(DefaultSteps) }

// DefaultSteps suffices for the cleanup scripts of stock libraries to visit 100,000 elements.
const DefaultSteps = 32_000_000

const (
	// minMemoryBytes is the lowest default of Limits.MemoryBytes, and the maximum of the limit of replies.
	minMemoryBytes = 64 << 20
	bytesPerStep   = 4
)

// LimitsOf returns the limits of scripts that may take this number of steps.
func LimitsOf(steps int64) Limits {
	return Limits{SourceBytes: 1 << 20, Steps: steps, MemoryBytes: max(minMemoryBytes, steps*bytesPerStep)}
}

// ErrBudget is wrapped by the error of a run that exceeded its [Limits].
var ErrBudget = errors.New("script is over its budget")

// The resources of a [BudgetError].
const (
	Steps  = "steps"
	Memory = "bytes of memory"
)

// BudgetError is the error of a run that exceeded its limits. The caller must undo the script's writes.
type BudgetError struct {
	// Resource is the resource whose limit was exceeded: [Steps], [Memory] or "bytes of reply".
	Resource string
	Limit    int64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("script is over its budget of %d %s (--%s)", e.Limit, e.Resource, protocol.ScriptStepsFlag)
}

func (e *BudgetError) Unwrap() error { return ErrBudget }

// ErrInternal is wrapped by the error of a run that a defect of the engine ended. All replicas return the same error.
// The caller must undo the script's writes.
var ErrInternal = errors.New("script engine failed")

// CompileError is the error of a source that does not compile.
type CompileError struct {
	// Text is the whole text of the error reply: "ERR Error compiling script (new function): user_script:1: …".
	Text string
}

func (e *CompileError) Error() string { return e.Text }

// replyBytes returns the limit of the strings in a reply.
func (l Limits) replyBytes() int64 { return min(l.MemoryBytes, minMemoryBytes) }

// withDefaults returns l with the defaults of all fields that are 0.
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
