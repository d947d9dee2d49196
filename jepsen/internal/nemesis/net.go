package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// partition cuts links as the step's kind says.
func (n *Nemesis) partition(ctx context.Context, s schedule.Step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	hears := topology(s.Fault, members)
	state := network.State{Cut: cuts(members, hears, s.Clients), Reset: s.Reset}
	e := effect{
		detail: describe(s, members, leader),
		mend:   func() error { return n.Net.Set(network.State{}) },
	}
	return e, n.Net.Set(state)
}

// topology says which of the members, in order, hears which: hears(to, from).
func topology(fault string, members []string) func(to, from int) bool {
	size := len(members)
	half := minority(members)
	switch fault {
	case "partition-halves":
		return func(to, from int) bool { return (to < half) == (from < half) }
	case "partition-ring":
		if size == 3 {
			// A whole ring of three has no cut: the first and the second do not hear each other.
			return func(to, from int) bool { return to+from != 1 }
		}
		// Each hears its neighbours on both sides, just enough for a majority.
		reach := (size/2 + 1) / 2
		return func(to, from int) bool {
			d := (to - from + size) % size
			return d <= reach || size-d <= reach
		}
	case "partition-bridge":
		bridge := size / 2
		return func(to, from int) bool { return to == bridge || from == bridge || (to < bridge) == (from < bridge) }
	case "partition-oneway":
		return func(to, from int) bool { return from != 0 || to == 0 }
	case "partition-deaf":
		return func(to, from int) bool { return to != 0 || from == 0 }
	default: // one, leader
		return func(to, from int) bool { return (to == 0) == (from == 0) }
	}
}

// cuts are the links that a topology does not have. With clients, those beside a member
// hear and are heard as it is.
func cuts(members []string, hears func(to, from int) bool, clients bool) []network.Link {
	var links []network.Link
	for from, f := range members {
		for to, t := range members {
			if from == to || hears(to, from) {
				continue
			}
			links = append(links, network.Link{From: f, To: t})
			if clients {
				links = append(links,
					network.Link{From: network.ClientsOf(f), To: t},
					network.Link{From: f, To: network.ClientsOf(t)})
			}
		}
	}
	return links
}

func describe(s schedule.Step, members []string, leader string) string {
	half := minority(members)
	var text string
	switch s.Fault {
	case "partition-halves":
		text = roles(members[:half], leader) + " | " + roles(members[half:], leader)
	case "partition-ring":
		text = "ring " + roles(members, leader)
	case "partition-bridge":
		text = roles(members, leader) + " over " + members[len(members)/2]
	case "partition-oneway":
		text = "nothing from " + role(members[0], leader)
	case "partition-deaf":
		text = "nothing to " + role(members[0], leader)
	default:
		text = role(members[0], leader) + " | the others"
	}
	var notes []string
	if s.Clients {
		notes = append(notes, "with clients")
	}
	if s.Reset {
		notes = append(notes, "by reset")
	}
	if notes != nil {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return text
}

// packets loses or delays what goes between members.
func (n *Nemesis) packets(_ context.Context, s schedule.Step) (effect, error) {
	e := effect{mend: func() error { return n.Net.Set(network.State{}) }}
	if s.Fault == "packets-lost" {
		e.detail = fmt.Sprintf("%d %% lost", s.Size)
		return e, n.Net.Set(network.State{Loss: float64(s.Size) / 100})
	}
	delay := time.Duration(s.Size) * time.Millisecond
	e.detail = fmt.Sprintf("%s later", delay)
	return e, n.Net.Set(network.State{Delay: delay})
}

const (
	// resetFor is how long each reset lasts: long enough that every connection has something to send.
	resetFor = 30 * time.Millisecond
	// resetDelay keeps things under way, where the net can do that: a reset hits requests that
	// were done and whose replies were not heard.
	resetDelay = 10 * time.Millisecond
)

// flap resets all connections between members again and again, until it is mended. Whatever was
// under way on them is sent again by whoever hears no reply.
func (n *Nemesis) flap(_ context.Context, s schedule.Step) (effect, error) {
	nobody := func(to, from int) bool { return false }
	down := network.State{Cut: cuts(n.Target.Members(), nobody, false), Reset: true}
	up := network.State{Delay: resetDelay}
	period := time.Duration(s.Size) * time.Millisecond
	flapping, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			err := n.Net.Set(down)
			sleep(flapping, resetFor)
			if err == nil {
				err = n.Net.Set(up)
			}
			if err != nil || !sleep(flapping, period) {
				done <- err
				return
			}
		}
	}()
	mend := func() error {
		stop()
		return errors.Join(<-done, n.Net.Set(network.State{}))
	}
	return effect{fmt.Sprintf("every %s", period), mend}, nil
}
