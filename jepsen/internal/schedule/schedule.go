// Package schedule draws the times and parameters of faults.
//
// It promises: the same seed and [Options] give the same schedule on every machine. Only what depends on the run, such
// as the leader when a fault begins, is written as a role and resolved then; everything else, down to the neighbours in
// a ring, is drawn here.
//
// The faults themselves are in package nemesis. Start reading at [Generate].
package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Lane is the part of the system that a fault affects. Two faults of one lane never overlap.
type Lane uint8

const (
	Net Lane = iota
	Process
	Clock
	Disk
	Raft
	Clients
	Members
	// Lanes is the number of lanes.
	Lanes
)

// Kind is a kind of fault as a schedule sees it. Package nemesis has the table of all.
type Kind struct {
	Name string
	Lane Lane
	history.Nature
	// Alone: the fault affects everything, so no other is active beside it.
	Alone bool
	// Ends: the fault ends processes for good, so it takes the lane of processes besides its own.
	Ends bool
	// Min and Max bound the duration of a fault; both are 0 for an instantaneous one.
	Min, Max time.Duration
	// Draw draws a step's further parameters, if not nil.
	Draw    func(*rand.Rand, *Step)
	Summary string
}

// Hostile is the group of deliberate attacks, which "mixed" excludes.
const Hostile = "hostile"

// Step is a fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"` // since the start of the run
	For   time.Duration `json:"for"`
	Fault string        `json:"fault"`
	// Order is the order in which this fault takes the nodes.
	Order []int `json:"order"`
	// Clients: clients are cut off with their nodes; otherwise they reach all nodes.
	Clients bool `json:"clients,omitempty"`
	// Reset: cuts reset connections instead of dropping traffic in silence.
	Reset bool `json:"reset,omitempty"`
	// Size is the severity of the fault, in the fault's own unit.
	Size int64 `json:"size,omitempty"`
}

// String returns the step as a line.
func (s Step) String() string {
	line := fmt.Sprintf("%8s +%-7s %-17s order %v", s.At.Round(time.Millisecond), s.For.Round(time.Millisecond), s.Fault,
		s.Order)
	if s.Size != 0 {
		line += fmt.Sprintf(" size %d", s.Size)
	}
	if s.Clients {
		line += " clients"
	}
	if s.Reset {
		line += " reset"
	}
	return line
}

// Rand is the source of the draws that a fault makes while active.
func (s Step) Rand() *rand.Rand { return rand.New(rand.NewPCG(uint64(s.At), uint64(s.For))) }

// Options bound a schedule.
type Options struct {
	Seed  uint64
	Nodes int
	Time  time.Duration
	// Faults are the kinds of which to draw.
	Faults []Kind
	// Between is the maximum time from one episode to the next, at least 1.5 s; 0 means 5 s.
	Between time.Duration
}

// quiet is the time without faults at both ends of a run.
const quiet = 3 * time.Second

// Select returns the supported kinds that --nemesis names: kinds, groups, "mixed" (all but hostile clients), "all" or
// "none".
func Select(kinds []Kind, list string, supported []string) ([]Kind, error) {
	var chosen []Kind
	for word := range strings.SplitSeq(list, ",") {
		if word == "none" {
			continue
		}
		known := false
		for _, k := range kinds {
			if !k.called(word) {
				continue
			}
			known = true
			switch {
			case slices.Contains(supported, k.Name):
				if !Has(chosen, k.Name) {
					chosen = append(chosen, k)
				}
			case word == k.Name:
				return nil, fmt.Errorf("nemesis %s is not possible with this target and network", word)
			}
		}
		if !known {
			return nil, fmt.Errorf("no nemesis %q", word)
		}
	}
	return chosen, nil
}

func (k Kind) called(word string) bool {
	return word == k.Name || word == k.Group || word == "all" || (word == "mixed" && k.Group != Hostile)
}

// Has reports whether kinds contains a name.
func Has(kinds []Kind, name string) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.Name == name })
}

// Drift returns the maximum drift of the kinds.
func Drift(kinds []Kind) float64 {
	worst := 0.0
	for _, k := range kinds {
		worst = max(worst, k.Drift)
	}
	return worst
}

// Generate draws a schedule: episodes of one fault, or of two in different lanes, separated by quiet times in which the
// service must recover. All kinds come once before any is repeated, so that a few minutes contain all of them. A kind
// that may take more than a quarter of the run is left out, unless there are no others.
func Generate(o Options) []Step {
	rng := rand.New(rand.NewPCG(o.Seed, 0x5c4ed01e))
	d := deck{rng: rng}
	longest := o.Between
	if longest == 0 {
		longest = 5 * time.Second
	}
	for _, k := range o.Faults {
		if k.Max <= o.Time/4 {
			d.all = append(d.all, k)
		}
	}
	if d.all == nil {
		d.all = slices.Clone(o.Faults)
	}
	if len(d.all) == 0 {
		return nil
	}
	var steps []Step
	at := quiet
	for {
		k, _ := d.draw(func(Kind) bool { return true })
		step := newStep(rng, k, at, o.Nodes)
		end := at + step.For
		if end > o.Time-quiet {
			return steps
		}
		steps = append(steps, step)
		beside := 0.3
		if k.Lane == Members {
			beside = 0.8 // a change of the members alone is no test
		}
		if rng.Float64() < beside && step.For > 0 && !k.Alone {
			from := at + between(rng, 0, step.For)
			fits := func(other Kind) bool {
				return other.Lane != k.Lane && !(k.Ends && other.Lane == Process) && !(other.Ends && k.Lane == Process) &&
					!other.Alone && from+other.Max <= o.Time-quiet
			}
			if other, found := d.draw(fits); found {
				second := newStep(rng, other, from, o.Nodes)
				steps = append(steps, second)
				end = max(end, second.At+second.For)
			}
		}
		at = end + between(rng, 1500*time.Millisecond, longest)
	}
}

// deck deals kinds in an order that is drawn anew when all are dealt.
type deck struct {
	rng       *rand.Rand
	all, rest []Kind
}

// draw deals the next kind that fits, if there is one.
func (d *deck) draw(fits func(Kind) bool) (Kind, bool) {
	if len(d.rest) == 0 {
		d.rest = slices.Clone(d.all)
		d.rng.Shuffle(len(d.rest), func(i, j int) { d.rest[i], d.rest[j] = d.rest[j], d.rest[i] })
	}
	i := slices.IndexFunc(d.rest, fits)
	if i < 0 {
		return Kind{}, false
	}
	k := d.rest[i]
	d.rest = slices.Delete(d.rest, i, i+1)
	return k, true
}

func newStep(rng *rand.Rand, k Kind, at time.Duration, nodes int) Step {
	s := Step{At: at, Fault: k.Name, Order: rng.Perm(nodes), For: between(rng, k.Min, k.Max)}
	if k.Draw != nil {
		k.Draw(rng, &s)
	}
	return s
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}
