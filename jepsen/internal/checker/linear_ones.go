package checker

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// linearOnes decides whether a counter to which every operation adds 1 is linearizable,
// exactly, in n log n steps. A search tries the unknown additions in every order: seventeen of
// them kept one key busy for longer than searchLimit.
//
// A sum is the number of an addition, so the order is known (Gibbons and Korach, "Testing
// Shared Memories", SIAM Journal on Computing 26, 1997: histories whose reads say which write
// they saw). An addition without an answer may be any sum that was not answered, and has no end
// to meet: the one that was called first does for the smallest. Each operation then takes place
// as early as it may; there is no order if one would be later than its end.
//
// It returns Unknown when an operation adds anything but 1.
func linearOnes(ops []porcupine.Operation) porcupine.CheckResult {
	var (
		adds    = map[int64]porcupine.Operation{} // by sum
		reads   = map[int64][]porcupine.Operation{}
		unknown []porcupine.Operation
		last    int64
	)
	for _, op := range ops {
		o := op.Input.(*history.Op)
		add := o.F == "add"
		if add && o.In(0) != 1 {
			return porcupine.Unknown
		}
		if add && o.Outcome == history.Info {
			unknown = append(unknown, op)
			continue
		}
		sum := o.Out(0)
		_, twice := adds[sum]
		switch {
		case sum < 0, add && (twice || sum == 0):
			return porcupine.Illegal
		case add:
			adds[sum] = op
		default:
			reads[sum] = append(reads[sum], op)
		}
		last = max(last, sum)
	}
	if last > int64(len(adds)+len(unknown)) {
		return porcupine.Illegal // and the sums are few enough to be counted through
	}
	slices.SortStableFunc(unknown, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return inOrder(adds, reads, unknown, last)
}

// inOrder places the additions up to the sum last, and the reads between them.
func inOrder(adds map[int64]porcupine.Operation, reads map[int64][]porcupine.Operation, unknown []porcupine.Operation,
	last int64,
) porcupine.CheckResult {
	var now int64
	for sum := int64(0); sum <= last; sum++ {
		if sum > 0 {
			add, known := adds[sum]
			if !known {
				if len(unknown) == 0 {
					return porcupine.Illegal
				}
				add, unknown = unknown[0], unknown[1:]
			}
			if now = max(now, add.Call); now > add.Return {
				return porcupine.Illegal
			}
		}
		of := now
		for _, read := range reads[sum] {
			at := max(of, read.Call)
			if at > read.Return {
				return porcupine.Illegal
			}
			now = max(now, at)
		}
	}
	return porcupine.Ok
}
