package checker

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Clocks bounds the error of clock rates in a run.
type Clocks struct {
	// Drift is a fraction: with 0.1 a clock may run up to a tenth too fast or too slow.
	Drift float64
}

// shortest returns the minimum real time, in nanoseconds, of a lease of that many milliseconds.
func (c Clocks) shortest(ttlMillis int64) int64 {
	return int64(float64(ttlMillis) * (1 - c.Drift) * float64(time.Millisecond))
}

// longest returns the maximum real time, in nanoseconds, of a lease of that many milliseconds.
func (c Clocks) longest(ttlMillis int64) int64 {
	return int64(float64(ttlMillis) * (1 + c.Drift) * float64(time.Millisecond))
}

// lockState is the model's state of a lock. No clock ends a lease here: any operation that may have been applied after
// a lease's end may find the lock free.
type lockState struct {
	owner int64 // 0: free
	until int64 // the earliest instant at which the lease may end
	now   int64 // a lower bound of the instants of the following operations
	token int64 // the largest one granted
}

// OwnerLock is a lock with an owner and a lease.
//
//	acquire owner, ttl [, …]  -> [1, token] granted, [0] refused
//	extend  owner, ttl        -> [1], or [0]: not the owner
//	release owner             -> [1], or [0]: not the owner
//	holder                    -> [owner], or [] when the lock is free
//
// A lease requested at c with a ttl of t does not end before c + t. A history in which another owner is granted the
// lock by an operation that returned earlier is illegal.
func OwnerLock(c Clocks) porcupine.Model { return lockModel(c, false) }

// FencedLock is [OwnerLock] where each grant carries a token larger than all before it.
func FencedLock(c Clocks) porcupine.Model { return lockModel(c, true) }

func lockModel(c Clocks, fenced bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, _ any) []any {
			var next []any
			o := input.(*history.Op)
			for _, s := range state.(lockState).at(o) {
				for _, n := range s.step(c, o, fenced) {
					next = append(next, n)
				}
			}
			return next
		},
		DescribeOperation: describe,
		DescribeState: func(state any) string {
			s := state.(lockState)
			if s.owner == 0 {
				return "free"
			}
			return fmt.Sprintf("held by %d until %.3f, token %d", s.owner, time.Duration(s.until).Seconds(), s.token)
		},
	}
	return m.ToModel()
}

// at returns the states in which o may find the lock: s, and a free lock if the lease may have ended.
func (s lockState) at(o *history.Op) []lockState {
	end := o.Return
	if o.Outcome == history.Info {
		end = 1<<63 - 1
	}
	s.now = max(s.now, o.Call)
	if s.now > end {
		return nil
	}
	states := []lockState{s}
	if s.owner != 0 && s.until <= end {
		states = append(states, lockState{now: max(s.now, s.until), token: s.token})
	}
	return states
}

// step returns the states after o, none if its outcome is impossible in s.
func (s lockState) step(c Clocks, o *history.Op, fenced bool) []lockState {
	unknown := o.Outcome == history.Info
	mine := s.owner != 0 && s.owner == o.In(0)
	said := o.Out(0) == 1
	switch o.F {
	case "acquire":
		if granted := s.owner == 0; granted {
			if !unknown && !said {
				return nil
			}
			return s.grant(c, o, fenced)
		}
		if unknown || !said {
			return []lockState{s}
		}
	case "extend":
		if unknown || said == mine {
			if mine {
				s.until = o.Call + c.shortest(o.In(1))
			}
			return []lockState{s}
		}
	case "release":
		if unknown || said == mine {
			if mine {
				s.owner, s.until = 0, 0
			}
			return []lockState{s}
		}
	case "holder":
		if o.Out(0) == s.owner {
			return []lockState{s}
		}
	}
	return nil
}

func (s lockState) grant(c Clocks, o *history.Op, fenced bool) []lockState {
	if fenced && o.Outcome == history.OK {
		if o.Out(1) <= s.token {
			return nil
		}
		s.token = o.Out(1)
	}
	s.owner, s.until = o.In(0), o.Call+c.shortest(o.In(1))
	return []lockState{s}
}
