package checker

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Missing is the value of a register that was never written, or was deleted: a write of it is a DEL.
const Missing = int64(-1)

// The operations of the models.
var (
	RegisterFunctions    = Functions{Writes: []string{"write", "cas"}, Reads: []string{"read"}}
	CounterFunctions     = Functions{Writes: []string{"add"}, Reads: []string{"read"}, decide: linearOnes}
	LockFunctions        = Functions{Writes: []string{"acquire", "extend", "release"}, Reads: []string{"holder"}}
	TransactionFunctions = Functions{Writes: []string{"txn"}}
)

// Register is a register with compare-and-set.
//
//	read             -> [value], or [] when there is none
//	write value
//	cas   from, to   -> [1], or [0] when the value was not from
//
// A read of several copies (script workload) returns all of them; all must be equal.
func Register() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return Missing },
		Step:              stepRegister,
		DescribeOperation: describe,
	}
}

func stepRegister(state, input, _ any) (bool, any) {
	value, o := state.(int64), input.(*history.Op)
	switch o.F {
	case "read":
		for _, out := range o.Output {
			if out != value {
				return false, value
			}
		}
		return len(o.Output) > 0 || value == Missing, value
	case "write":
		return true, o.In(0)
	case "cas":
		swapped := value == o.In(0)
		if o.Outcome == history.OK && swapped != (o.Out(0) == 1) {
			return false, value
		}
		if swapped {
			return true, o.In(1)
		}
		return true, value
	}
	return false, value
}

// Counter is the sum of the numbers that were added.
//
//	add  n  -> [the sum after it]
//	read    -> [the sum]
func Counter() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return int64(0) },
		Step:              stepCounter,
		DescribeOperation: describe,
	}
}

func stepCounter(state, input, _ any) (bool, any) {
	sum, o := state.(int64), input.(*history.Op)
	if o.F == "add" {
		sum += o.In(0)
	}
	return o.Outcome == history.Info || o.Out(0) == sum, sum
}

// describe returns an operation as porcupine's timeline shows it.
func describe(input, _ any) string {
	o := input.(*history.Op)
	if o.Txn != nil {
		return fmt.Sprintf("%v %s", o.Txn, o.Outcome)
	}
	if o.Outcome == history.Info {
		return fmt.Sprintf("%s%v unknown: %s", o.F, o.Input, o.Error)
	}
	return fmt.Sprintf("%s%v -> %v", o.F, o.Input, o.Output)
}

// PassFunctions are the operations of [Passes].
var PassFunctions = Functions{Writes: []string{"pass"}, Reads: []string{"passed"}}

// Passes is a resource that accepts a fence unless it has accepted a larger one.
//
//	pass   fence -> [1], or [0] if a larger one has passed
//	passed       -> [1, the largest], or [0] if none has
func Passes() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return int64(0) },
		Step:              stepPasses,
		DescribeOperation: describe,
	}
}

func stepPasses(state, input, _ any) (bool, any) {
	largest, o := state.(int64), input.(*history.Op)
	if o.F == "passed" {
		return o.Out(1) == largest && (o.Out(0) == 1) == (largest > 0), largest
	}
	fits := o.In(0) >= largest
	return o.Outcome == history.Info || fits == (o.Out(0) == 1), max(largest, o.In(0))
}
