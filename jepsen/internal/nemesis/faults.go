package nemesis

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// inject makes one fault.
type inject func(n *Nemesis, ctx context.Context, s step) (effect, error)

// order is the leader's position among the nodes of a step.
type order uint8

const (
	drawn order = iota
	leaderFirst
	leaderLast
)

// step is a step of the schedule with the leader's position.
type step struct {
	schedule.Step
	order order
}

// fault is a row of the table: its kind in a schedule, the leader's position, and the injection.
type fault struct {
	schedule.Kind
	order  order
	inject inject
}

const second = time.Second

// faults are all faults. A new fault needs a row here, and its name in the Supports of a target.
var faults = slices.Concat(netFaults, processFaults, serverFaults, stateFaults, powerFaults, cacheFaults, memberFaults,
	bareFaults, backupFaults, holderFaults, releaseFaults, hostileFaults)

var netFaults = []fault{
	{
		kind("partition-one", schedule.Net, 2*second, 8*second, sides, "one node is cut off from the others"), drawn,
		(*Nemesis).partition,
	},
	{
		kind("partition-leader", schedule.Net, 2*second, 8*second, sides, "the leader is cut off from the others"),
		leaderFirst, (*Nemesis).partition,
	},
	{kind("partition-halves", schedule.Net, 2*second, 8*second, sides,
		"a majority and a minority do not hear each other"), drawn, (*Nemesis).partition},
	{kind("partition-ring", schedule.Net, 2*second, 8*second, sides,
		"each node hears a majority, and no two hear the same"), drawn, (*Nemesis).partition},
	{
		kind("partition-bridge", schedule.Net, 2*second, 8*second, sides, "two halves meet in one node only"), drawn,
		(*Nemesis).partition,
	},
	{kind("partition-oneway", schedule.Net, 2*second, 8*second, sides,
		"nothing gets from one node to the others, but all of theirs gets to it"), drawn, (*Nemesis).partition},
	{
		kind("partition-deaf", schedule.Net, 2*second, 8*second, sides, "the leader hears no other, but all hear it"),
		leaderFirst, (*Nemesis).partition,
	},
	{
		kind("packets-lost", schedule.Net, 3*second, 8*second, size(5, 30), "a share of all packets between nodes is lost"),
		drawn, (*Nemesis).lose,
	},
	{
		kind("packets-slow", schedule.Net, 3*second, 8*second, size(20, 300), "everything between nodes is delayed"), drawn,
		(*Nemesis).delay,
	},
	{kind("packets-large", schedule.Net, 7*second, 10*second, size(0, 3),
		"large packets are lost and small ones pass, as on a path with a wrong MTU: from the leader to all others, to the "+
			"leader, or between the leader and one other"), leaderFirst, (*Nemesis).loseLarge},
	{kind("packets-reset", schedule.Net, 2*second, 6*second, size(100, 400),
		"all connections between nodes are reset again and again, and may be made anew"), drawn, (*Nemesis).flap},
	{
		kind("refuse-leader", schedule.Net, 3*second, 6*second, size(500, 400),
			"a firewall answers new connections to the leader's peer port with a reset, and ends the old ones again and again"),
		leaderFirst, (*Nemesis).refuseOne,
	},
	{
		kind("refuse-all", schedule.Net, 3*second, 5*second, size(800, 400),
			"a firewall answers all new connections between nodes with a reset; the leader's old ones end, too"), leaderFirst,
		(*Nemesis).refuseAll,
	},
}

var processFaults = []fault{
	{
		kind("kill-leader", schedule.Process, second/2, 5*second, nil, "kill -9 of the leader, restarted later"),
		leaderFirst, kill(one),
	},
	{
		kind("kill-follower", schedule.Process, second/2, 5*second, nil, "kill -9 of a follower, restarted later"),
		leaderLast, kill(one),
	},
	{
		kind("kill-minority", schedule.Process, second/2, 5*second, nil, "kill -9 of as many as a majority can spare"),
		drawn, kill(minority),
	},
	{kind("kill-all", schedule.Process, second/10, 2*second, nil, "kill -9 of every node at once"), drawn, kill(everyone)},
	{kind("kill-loop", schedule.Process, 4*second, 8*second, nil,
		"kill -9 of some node, mostly the leader, again and again, each restarted at once"), drawn, (*Nemesis).crashLoop},
	{
		kind("restart-all", schedule.Process, 0, 0, nil, "every node is told to end in good order, and started again"),
		drawn, (*Nemesis).restartAll,
	},
	{kind("restart-rolling", schedule.Process, 0, 0, nil,
		"one node after the other ends in good order and is started again"), drawn, (*Nemesis).restartRolling},
	{kind("pause-leader", schedule.Process, 1500*time.Millisecond, 6*second, nil,
		"SIGSTOP of the leader for longer than a lease"), leaderFirst, pause(one)},
	{kind("pause-minority", schedule.Process, 1500*time.Millisecond, 6*second, nil,
		"SIGSTOP of as many as a majority can spare"), drawn, pause(minority)},
	{
		kind("pause-all", schedule.Process, 1500*time.Millisecond, 4*second, nil, "SIGSTOP of every node"), drawn,
		pause(everyone),
	},
	{kind("pause-strobe", schedule.Process, 3*second, 6*second, nil,
		"SIGSTOP and SIGCONT of the leader in quick turns, just below and above its lease"), drawn, (*Nemesis).strobe},
	{
		kind("pause-minute", schedule.Process, 45*second, 60*second, nil, "SIGSTOP of the leader for a minute"), leaderFirst,
		pause(one),
	},
	{kind("store-torn", schedule.Process, second/2, 3*second, nil,
		"a killed node comes back with garbage behind its log"), drawn, damaged((*Nemesis).startTorn)},
	{kind("store-flipped", schedule.Process, second/2, 3*second, nil,
		"a killed node comes back with a bit changed in its log"), drawn, damaged((*Nemesis).startFlipped)},
}

var serverFaults = []fault{
	{clock("clock-jump", 0, magnitude, "one node's wall clock is off by anything up to months"), drawn, (*Nemesis).jump},
	{clock("clock-strobe", 0, magnitude, "one node's wall clock flips to and fro"), drawn, (*Nemesis).strobeClock},
	{clock("clock-leader", 0, magnitude, "the leader's wall clock flips to and fro"), leaderFirst, (*Nemesis).strobeClock},
	// The drift is a tenth, and the error of dividing by a rate.
	{own("clock-rate", clock("clock-rate", 0.12, size(900, 201),
		"one node's monotonic clock runs up to a tenth too fast or too slow")), drawn, (*Nemesis).rate},
	{
		kind("disk-slow", schedule.Disk, 2*second, 6*second, size(10, 400), "writes of one node take longer"), drawn,
		disk("DELAY"),
	},
	{
		kind("disk-hang", schedule.Disk, 1*second, 6*second, nil, "writes of the leader do not return"), leaderFirst,
		disk("HANG"),
	},
	{kind("disk-error", schedule.Disk, 1*second, 4*second, nil, "writes of one node fail"), drawn, disk("ERROR")},
	{
		kind("disk-full", schedule.Disk, 1*second, 4*second, nil, "writes of one node fail with ENOSPC"), drawn,
		disk("ENOSPC"),
	},
	{
		kind("disk-torn", schedule.Disk, 1*second, 4*second, nil, "one node ends in the middle of an append"), drawn,
		disk("TORN"),
	},
	{kind("busy-leader", schedule.Disk, 2*second, 6*second, size(50, 750),
		"the leader's state machine is at work for long with each entry, as with long scripts"), leaderFirst, busy(one)},
	{
		kind("busy-follower", schedule.Disk, 2*second, 6*second, size(50, 750), "the same on a follower"), leaderLast,
		busy(one),
	},
	{
		kind("busy-all", schedule.Disk, 2*second, 6*second, size(50, 750), "the same on every node"), drawn,
		busy(everyone),
	},
	{kind("transfer", schedule.Raft, 0, 0, nil, "the leadership is handed over"), drawn, (*Nemesis).transfer},
	{kind("snapshot", schedule.Raft, 0, 0, nil, "all nodes take a snapshot"), drawn, (*Nemesis).snapshot},
	{
		alone(kind("snapshot-tail", schedule.Raft, 18*second, 25*second, nil,
			"a follower returns by a snapshot, then its leader is lost with the one entry behind it")), drawn,
		(*Nemesis).loseTail,
	},
}

// Kinds returns the table in the form that schedules use.
func Kinds() []schedule.Kind {
	kinds := make([]schedule.Kind, len(faults))
	for i, f := range faults {
		kinds[i] = f.Kind
	}
	return kinds
}

// Names are the names of all kinds.
func Names() []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.Name
	}
	return names
}

// faultOf is the row of a kind. Requires: there is one.
func faultOf(name string) fault {
	return faults[slices.IndexFunc(faults, func(f fault) bool { return f.Name == name })]
}

// kind is a row's first half. The group is the first word of the name.
func kind(name string, lane schedule.Lane, low, high time.Duration, draw func(*rand.Rand, *schedule.Step),
	summary string,
) schedule.Kind {
	return schedule.Kind{
		Name: name, Nature: history.Nature{Group: firstWord(name)}, Lane: lane, Min: low, Max: high, Draw: draw,
		Summary: summary,
	}
}

// clock is a fault of a node's clock, which must not delay anything.
func clock(name string, drift float64, draw func(*rand.Rand, *schedule.Step), summary string) schedule.Kind {
	k := kind(name, schedule.Clock, 2*second, 6*second, draw, summary)
	k.NoExcuse, k.Drift = true, drift
	return k
}

// own puts a kind into a group of its own.
func own(group string, k schedule.Kind) schedule.Kind {
	k.Group = group
	return k
}

func alone(k schedule.Kind) schedule.Kind {
	k.Alone = true
	return k
}

// The draws of steps.

// sides draws whether clients are cut off together with their node, and by reset or in silence.
func sides(rng *rand.Rand, s *schedule.Step) {
	s.Clients, s.Reset = rng.Float64() < 0.5, rng.Float64() < 0.2
}

// size draws one of n sizes from low on.
func size(low, n int64) func(*rand.Rand, *schedule.Step) {
	return func(rng *rand.Rand, s *schedule.Step) { s.Size = low + rng.Int64N(n) }
}

// magnitude draws an offset from a tenth of a second to months, in either direction, uniform in its logarithm.
func magnitude(rng *rand.Rand, s *schedule.Step) {
	s.Size = 100
	for range rng.IntN(9) {
		s.Size *= 10
	}
	if rng.IntN(2) == 0 {
		s.Size = -s.Size
	}
}

// The numbers of members that a fault hits.

func one([]string) int              { return 1 }
func everyone(members []string) int { return len(members) }

// minority returns the largest number of members without which the rest is a majority, but at least 1.
func minority(members []string) int { return max(1, (len(members)-1)/2) }
