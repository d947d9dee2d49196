package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Queue checks queues at which clients wait, against a model: first in, first out.
//
//	push  values             -> [the length after them]
//	pop   wait, 1 if it moves -> [value], or [] if the wait timed out
//	left                     -> the values, when no client pops any more
//
// A pop without a value must have found the queue empty at the end of its wait or later, so a client that waits
// although there is a value is found.
func Queue(c Clocks) Func {
	linear := Linear("first in, first out", queueModel, Functions{
		Writes: []string{"push", "pop"},
		Reads:  []string{"left"},
	})
	return func(h *history.History) Result {
		shifted := &history.History{Ops: slices.Clone(h.Ops), Faults: h.Faults}
		for i := range shifted.Ops {
			if o := &shifted.Ops[i]; waitedInVain(o) {
				o.Call = min(o.Return, o.Call+c.shortest(o.In(0)))
			}
		}
		return linear(shifted)
	}
}

func waitedInVain(o *history.Op) bool {
	return o.F == "pop" && o.Outcome == history.OK && len(o.Output) == 0
}

// The state of queueModel is the values as words, each followed by a blank.
var queueModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(string), input.(*history.Op)
		known := o.Outcome == history.OK
		switch o.F {
		case "push":
			s += valueWords(o.Input)
			return !known || int(o.Out(0)) == strings.Count(s, " "), s
		case "pop":
			first, rest, some := strings.Cut(s, " ")
			if !some {
				return !known || len(o.Output) == 0, s
			}
			return !known || len(o.Output) > 0 && valueWords(o.Output[:1]) == first+" ", rest
		}
		return valueWords(o.Output) == s, s
	},
	DescribeOperation: describe,
	DescribeState:     func(state any) string { return fmt.Sprintf("[%s]", strings.TrimSpace(state.(string))) },
}

func valueWords(values []int64) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprint(&b, v, " ")
	}
	return b.String()
}

// Deliveries checks queues, and says in words what is wrong. Each value is delivered once, or at most once if the
// outcome of a pop is unknown. A failed push has no effect. A value that was moved is in the list of moved ones, in the
// order of the queue. No wait ends before its timeout. Deliveries reads the operations of [Queue], and
//
//	done -> the values that were moved, when no client moves any more
func Deliveries(c Clocks) Func {
	return func(h *history.History) Result {
		r := newResult("deliveries", h.Count(history.OK))
		for key, ops := range h.ByKey() {
			d := delivered{r: r, key: key, pushes: map[int64]*history.Op{}, to: map[int64]*history.Op{}}
			d.gather(ops, c)
			d.findLost()
			d.findMoved()
		}
		return *r
	}
}

// delivered has the operations of one queue.
type delivered struct {
	r          *Result
	key        string
	pushes     map[int64]*history.Op // by value
	to         map[int64]*history.Op // by value: the pop that got it, or the list where it is
	left, done *history.Op           // nil if not read
	unknown    int                   // pops of unknown outcome
}

func (d *delivered) gather(ops []history.Op, c Clocks) {
	for i := range ops {
		if o := &ops[i]; o.F == "push" {
			for _, v := range o.Input {
				d.pushes[v] = o
			}
		}
	}
	for i := range ops {
		o := &ops[i]
		switch {
		case o.F == "left" && o.Outcome == history.OK:
			d.left = o
		case o.F == "done" && o.Outcome == history.OK:
			d.done = o
		case o.F != "pop":
		case o.Outcome == history.Info:
			d.unknown++
		case waitedInVain(o) && o.Return < o.Call+c.shortest(o.In(0)):
			d.r.find("%s: a wait ended %s early: %s", d.key, time.Duration(o.Call+c.shortest(o.In(0))-o.Return), o)
		case o.Outcome == history.OK && len(o.Output) > 0:
			d.r.Counts["delivered"]++
			d.deliver(o.Out(0), o)
		}
	}
	for _, list := range []*history.Op{d.left, d.done} {
		if list == nil {
			continue
		}
		for _, v := range list.Output {
			if by := d.to[v]; list == d.done && by != nil && by.F == "pop" && by.In(1) == 1 {
				continue // the client that moved the value got it
			}
			d.deliver(v, list)
		}
	}
}

func (d *delivered) deliver(v int64, to *history.Op) {
	push := d.pushes[v]
	switch {
	case push == nil:
		d.r.find("%s: no client pushed %d: %s", d.key, v, to)
	case push.Outcome == history.Fail:
		d.r.find("%s: what failed is there: %s, in %s", d.key, push, to)
	case d.to[v] != nil:
		d.r.find("%s: %d was delivered twice: %s, and %s", d.key, v, d.to[v], to)
	}
	d.to[v] = to
}

// findLost reports the values that no client got, if they are more than the pops of unknown outcome.
func (d *delivered) findLost() {
	if d.left == nil || d.done == nil {
		return
	}
	var lost []int64
	for v, push := range d.pushes {
		if push.Outcome == history.OK && d.to[v] == nil {
			lost = append(lost, v)
		}
	}
	if slices.Sort(lost); len(lost) > d.unknown {
		d.r.find("%s: lost: no client got %v, though the outcome of only %d pops is unknown", d.key, lost, d.unknown)
	}
}

// findMoved judges the list of moved values.
func (d *delivered) findMoved() {
	if d.done == nil {
		return
	}
	for v, to := range d.to {
		if to.F == "pop" && to.In(1) == 1 && to.Return < d.done.Call && !slices.Contains(d.done.Output, v) {
			d.r.find("%s: lost: %s moved a value that is not there: %s", d.key, to, d.done)
		}
	}
	for i := 1; i < len(d.done.Output); i++ {
		a, b := d.done.Output[i-1], d.done.Output[i]
		if pa, pb := d.pushes[a], d.pushes[b]; pa != nil && pb != nil && pushedBefore(pb, b, pa, a) {
			d.r.find("%s: %d was moved behind %d, though it was pushed before: %s, and then %s", d.key, b, a, pb, pa)
		}
	}
}

// pushedBefore reports whether v was before w in the queue.
func pushedBefore(push *history.Op, v int64, other *history.Op, w int64) bool {
	if push == other {
		return slices.Index(push.Input, v) < slices.Index(push.Input, w)
	}
	return push.Outcome == history.OK && push.Return < other.Call
}
