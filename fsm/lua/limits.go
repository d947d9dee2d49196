package lua

import (
	"errors"
	"fmt"
)

// Limits bounds a script. They are part of what replicas must agree on: two
// nodes with different limits diverge, so they are constants of a release and
// not an operator's option.
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
	// reply may stand for as many bytes again, be it of strings that are there only once.
	MemoryBytes int64
}

// DefaultLimits are the limits of this release. DESIGN.md has the
// measurements behind them.
func DefaultLimits() Limits {
	return Limits{SourceBytes: 1 << 20, Steps: 5_000_000, MemoryBytes: 64 << 20}
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
	return fmt.Sprintf("script is over its budget of %d %s", e.Limit, e.Resource)
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
