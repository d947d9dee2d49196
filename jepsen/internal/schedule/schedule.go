package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Lane is what a fault takes hold of. Two faults of one lane never overlap.
type Lane uint8

// The lanes.
const (
	Net Lane = iota
	Process
	Clock
	Disk
	Raft
	// Lanes is their number.
	Lanes
)

// Kind is a row of the table of faults.
type Kind struct {
	Name  string
	Group string // what --nemesis calls it and its like
	Lane  Lane
	// Min and Max bound how long it lasts; both 0: it is over at once.
	Min, Max time.Duration
	// Majority: the fault may leave no majority whole, so nobody is served while it lasts.
	Majority bool
	Summary  string
}

// kinds are all faults.
var kinds = []Kind{
	{"partition-one", "partition", Net, 2 * time.Second, 8 * time.Second, false, "one node is cut off from the others"},
	{"partition-leader", "partition", Net, 2 * time.Second, 8 * time.Second, false, "the leader is cut off from the others"},
	{"partition-halves", "partition", Net, 2 * time.Second, 8 * time.Second, false, "a majority and a minority do not hear each other"},
	{"partition-ring", "partition", Net, 2 * time.Second, 8 * time.Second, false, "each node hears a majority, and no two hear the same"},
	{"partition-bridge", "partition", Net, 2 * time.Second, 8 * time.Second, false, "two halves meet in one node only"},
	{"partition-oneway", "partition", Net, 2 * time.Second, 8 * time.Second, false, "nothing gets from one node to the others, but all of theirs gets to it"},
	{"partition-deaf", "partition", Net, 2 * time.Second, 8 * time.Second, false, "the leader hears nobody, but all hear it"},
	{"packets-lost", "packets", Net, 3 * time.Second, 8 * time.Second, false, "a share of all packets between nodes is lost"},
	{"packets-slow", "packets", Net, 3 * time.Second, 8 * time.Second, false, "everything between nodes is delayed"},
	{"packets-reset", "packets", Net, 2 * time.Second, 6 * time.Second, false, "all connections between nodes are reset again and again, and may be made anew"},

	{"kill-leader", "kill", Process, 500 * time.Millisecond, 5 * time.Second, false, "kill -9 of the leader, restarted later"},
	{"kill-follower", "kill", Process, 500 * time.Millisecond, 5 * time.Second, false, "kill -9 of a follower, restarted later"},
	{"kill-minority", "kill", Process, 500 * time.Millisecond, 5 * time.Second, false, "kill -9 of as many as a majority can spare"},
	{"kill-all", "kill", Process, 100 * time.Millisecond, 2 * time.Second, true, "kill -9 of every node at once"},
	{"restart-all", "restart", Process, 0, 0, true, "every node is told to end in good order, and started again"},
	{"restart-rolling", "restart", Process, 0, 0, false, "one node after the other ends in good order and is started again"},
	{"pause-leader", "pause", Process, 1500 * time.Millisecond, 6 * time.Second, false, "SIGSTOP of the leader for longer than a lease"},
	{"pause-minority", "pause", Process, 1500 * time.Millisecond, 6 * time.Second, false, "SIGSTOP of as many as a majority can spare"},
	{"pause-all", "pause", Process, 1500 * time.Millisecond, 4 * time.Second, true, "SIGSTOP of every node"},

	{"clock-jump", "clock", Clock, 2 * time.Second, 6 * time.Second, false, "one node's wall clock is off by anything up to months"},
	{"clock-strobe", "clock", Clock, 2 * time.Second, 6 * time.Second, false, "one node's wall clock flips to and fro"},
	{"clock-leader", "clock", Clock, 2 * time.Second, 6 * time.Second, false, "the leader's wall clock flips to and fro"},
	{"clock-rate", "clock-rate", Clock, 2 * time.Second, 6 * time.Second, false, "one node's monotonic clock runs up to a tenth too fast or too slow"},

	{"disk-slow", "disk", Disk, 2 * time.Second, 6 * time.Second, false, "writes of one node take longer"},
	{"disk-hang", "disk", Disk, 1 * time.Second, 6 * time.Second, false, "writes of the leader do not return"},
	{"disk-error", "disk", Disk, 1 * time.Second, 4 * time.Second, false, "writes of one node fail"},
	{"disk-full", "disk", Disk, 1 * time.Second, 4 * time.Second, false, "writes of one node fail with ENOSPC"},
	{"disk-torn", "disk", Disk, 1 * time.Second, 4 * time.Second, false, "one node ends in the middle of an append"},
	{"store-torn", "store", Process, 500 * time.Millisecond, 3 * time.Second, false, "a killed node comes back with garbage behind its log"},
	{"store-flipped", "store", Process, 500 * time.Millisecond, 3 * time.Second, false, "a killed node comes back with a bit changed in its log"},

	{"transfer", "transfer", Raft, 0, 0, false, "the leadership is handed over"},
	{"snapshot", "snapshot", Raft, 0, 0, false, "all nodes take a snapshot"},
}

// Kinds is the table of faults.
func Kinds() []Kind { return slices.Clone(kinds) }

// LaneOf is the lane of a kind.
func LaneOf(name string) Lane {
	for _, k := range kinds {
		if k.Name == name {
			return k.Lane
		}
	}
	return Raft
}

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"` // since the run began
	For   time.Duration `json:"for"`
	Fault string        `json:"fault"`
	// Order is the nodes in the order this fault takes them.
	Order []int `json:"order"`
	// Clients are cut off with their nodes; otherwise they reach all nodes.
	Clients bool `json:"clients,omitempty"`
	// Reset: cuts end connections instead of being silent.
	Reset bool `json:"reset,omitempty"`
	// Size is how bad it is, in the fault's own unit.
	Size int64 `json:"size,omitempty"`
}

// String is the step as a line.
func (s Step) String() string {
	line := fmt.Sprintf("%8s +%-7s %-17s order %v", s.At.Round(time.Millisecond), s.For.Round(time.Millisecond), s.Fault, s.Order)
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

// Options bound a schedule.
type Options struct {
	Seed  uint64
	Nodes int
	Time  time.Duration
	// Faults are the names of the kinds to draw from.
	Faults []string
}

// quiet is the time at both ends of a run in which nothing is broken.
const quiet = 3 * time.Second

// Select turns what --nemesis says (names of kinds, groups, "mixed" or "none") into names of
// kinds, of those that are supported.
func Select(list string, supported []string) ([]string, error) {
	var names []string
	for word := range strings.SplitSeq(list, ",") {
		if word == "none" {
			continue
		}
		known := false
		for _, k := range kinds {
			if word != "mixed" && word != k.Name && word != k.Group {
				continue
			}
			known = true
			if slices.Contains(supported, k.Name) && !slices.Contains(names, k.Name) {
				names = append(names, k.Name)
			} else if word == k.Name && !slices.Contains(supported, k.Name) {
				return nil, fmt.Errorf("nemesis %s is not possible with this target and network", word)
			}
		}
		if !known {
			return nil, fmt.Errorf("no nemesis %q", word)
		}
	}
	return names, nil
}

// Generate draws a schedule: episodes of one fault, or two of different lanes, with
// quiet between them in which the service must recover. Every kind comes once before any
// comes again, so a few minutes have all of them.
func Generate(o Options) []Step {
	rng := rand.New(rand.NewPCG(o.Seed, 0x5c4ed01e))
	d := deck{rng: rng}
	for _, k := range kinds {
		if slices.Contains(o.Faults, k.Name) {
			d.all = append(d.all, k)
		}
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
		if rng.Float64() < 0.3 && step.For > 0 {
			from := at + between(rng, 0, step.For)
			fits := func(other Kind) bool { return other.Lane != k.Lane && from+other.Max <= o.Time-quiet }
			if other, found := d.draw(fits); found {
				second := newStep(rng, other, from, o.Nodes)
				steps = append(steps, second)
				end = max(end, second.At+second.For)
			}
		}
		at = end + between(rng, 1500*time.Millisecond, 5*time.Second)
	}
}

// deck is kinds in an order drawn anew when all are dealt.
type deck struct {
	rng       *rand.Rand
	all, rest []Kind
}

// draw deals the next kind that will do, if there is one left in the deck.
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
	switch {
	case strings.HasPrefix(k.Name, "partition"):
		s.Clients, s.Reset = rng.Float64() < 0.5, rng.Float64() < 0.2
	case k.Name == "packets-lost":
		s.Size = 5 + rng.Int64N(30) // percent
	case k.Name == "packets-slow":
		s.Size = 20 + rng.Int64N(300) // milliseconds
	case k.Name == "packets-reset":
		s.Size = 100 + rng.Int64N(400) // milliseconds between two resets
	case k.Name == "clock-jump", k.Name == "clock-strobe", k.Name == "clock-leader":
		// From a tenth of a second to months, either way: all magnitudes alike.
		s.Size = 100
		for range rng.IntN(9) {
			s.Size *= 10
		}
		if rng.IntN(2) == 0 {
			s.Size = -s.Size
		}
	case k.Name == "clock-rate":
		s.Size = 900 + rng.Int64N(201) // permille
	case k.Name == "disk-slow":
		s.Size = 10 + rng.Int64N(400) // milliseconds
	}
	return s
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}
