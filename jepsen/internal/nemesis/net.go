package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// partition cuts the links of the step's kind.
func (n *Nemesis) partition(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	hears := topology(s.Fault, members)
	state := network.State{Cut: cuts(members, hears, s.Clients), Reset: s.Reset}
	e := effect{
		detail: describe(s, members, leader),
		mend:   n.wholeNet,
	}
	return e, n.Net.Set(state)
}

// topology returns hears(to, from): whether one member hears another, by position.
func topology(fault string, members []string) func(to, from int) bool {
	size := len(members)
	half := minority(members)
	switch fault {
	case "partition-halves":
		return func(to, from int) bool { return (to < half) == (from < half) }
	case "partition-ring":
		if size == 3 {
			// In a ring of three all hear each other, so one link is cut: between the first and the second.
			return func(to, from int) bool { return to+from != 1 }
		}
		// Each hears as many neighbours on both sides as complete a majority.
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
	default: // a node, the leader
		return func(to, from int) bool { return (to == 0) == (from == 0) }
	}
}

// cuts returns the links that a topology lacks. With clients, the clients of a member are cut off like the member.
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

func describe(s step, members []string, leader string) string {
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

// lose drops a share of the packets between members.
func (n *Nemesis) lose(_ context.Context, s step) (effect, error) {
	return n.impair(fmt.Sprintf("%d %% lost", s.Size), network.State{Loss: float64(s.Size) / 100})
}

// delay delays all traffic between members.
func (n *Nemesis) delay(_ context.Context, s step) (effect, error) {
	delay := time.Duration(s.Size) * time.Millisecond
	return n.impair(fmt.Sprintf("%s later", delay), network.State{Delay: delay})
}

// loseLarge drops large packets from the leader to all others, from all others to the leader, or between the leader and
// one other.
func (n *Nemesis) loseLarge(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	one, others := members[0], members[1:]
	detail := "from " + role(one, leader)
	switch s.Size {
	case 1:
		detail = "to " + role(one, leader)
	case 2:
		others = others[:min(1, len(others))]
		detail = "between " + roles(members[:1+len(others)], leader)
	}
	var links []network.Link
	for _, other := range others {
		if s.Size != 1 {
			links = append(links, network.Link{From: one, To: other})
		}
		if s.Size != 0 {
			links = append(links, network.Link{From: other, To: one})
		}
	}
	e, err := n.impair(detail, network.State{Large: links})
	if err != nil {
		return e, err
	}
	hit := append([]string{one}, others...)
	served := make([]time.Duration, len(hit))
	beside := n.beside()
	var writers sync.WaitGroup
	for i, member := range hit {
		writers.Go(func() { served[i] = n.writeLarge(ctx, member, i%n.Target.Sides(), beside) })
	}
	e.mend = func() error {
		writers.Wait()
		return n.wholeNet()
	}
	e.details = func() string { return fmt.Sprintf("(large writes through these served after %v)", served) }
	return e, nil
}

const (
	// largeBytes is the size of a write that needs a packet which [network.State.Large] loses.
	largeBytes = 2000
	// largeLimit bounds such a write: the leader detects missing acknowledgements, another leader is elected, and new
	// connections use small packets.
	largeLimit = 20 * second
)

// writeLarge writes through a member until a write is acknowledged, and returns how long that took. More than
// largeLimit is a finding, unless another fault was active.
func (n *Nemesis) writeLarge(ctx context.Context, member string, side int, beside func() bool) time.Duration {
	began, last := time.Now(), ""
	key := "jepsen-large:" + member
	for !beside() && ctx.Err() == nil {
		took := time.Since(began).Round(time.Millisecond)
		if took > largeLimit {
			n.find("packets-large: no write of %d bytes through %s was acknowledged within %s: %s", largeBytes, member,
				largeLimit, last)
			return took
		}
		nc, err := n.Target.Dial(ctx, side, member)
		if err != nil {
			last = err.Error()
		} else {
			conn := wire.New(nc, witnessTimeout)
			r := conn.Do("SET", key, strings.Repeat("v", largeBytes), "PX", millis(2*largeLimit))
			conn.Close()
			if r.Outcome == history.OK {
				return time.Since(began).Round(time.Millisecond)
			}
			last = r.Why
		}
		workload.Sleep(ctx, 50*time.Millisecond)
	}
	return 0
}

// impair sets the network's state until the effect is mended.
func (n *Nemesis) impair(detail string, state network.State) (effect, error) {
	return effect{detail: detail, mend: n.wholeNet}, n.Net.Set(state)
}

func (n *Nemesis) wholeNet() error { return n.Net.Set(network.State{}) }

const (
	// resetFor is the duration of each reset: long enough for every connection to send something.
	resetFor = 30 * time.Millisecond
	// resetDelay delays traffic, where the network supports that, so that a reset hits requests that were executed but
	// not answered.
	resetDelay = 10 * time.Millisecond
)

// flap resets all connections between members in a loop. A member without a reply sends its request again.
func (n *Nemesis) flap(_ context.Context, s step) (effect, error) {
	none := func(to, from int) bool { return false }
	down := network.State{Cut: cuts(n.Target.Members(), none, false), Reset: true}
	up := network.State{Delay: resetDelay}
	period := time.Duration(s.Size) * time.Millisecond
	return n.resets(fmt.Sprintf("every %s", period), down, up, period), nil
}

// refuseOne blocks new connections to the peer port of one member, as a firewall does. Existing connections are reset
// again and again.
func (n *Nemesis) refuseOne(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	return n.refuse(s, members[:1], members[0], role(members[0], leader))
}

// refuseAll does so at all members.
func (n *Nemesis) refuseAll(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	return n.refuse(s, members, members[0], "all; "+role(members[0], leader)+" loses its connections")
}

// refuse blocks new connections between nodes to some members. The connections of one member are reset again and again.
func (n *Nemesis) refuse(s step, refusing []string, cut, detail string) (effect, error) {
	period := time.Duration(s.Size) * time.Millisecond
	up := network.State{Refuse: refusing}
	down := network.State{Refuse: refusing, Reset: true}
	for _, m := range n.Target.Members() {
		if m != cut {
			down.Cut = append(down.Cut, network.Link{From: m, To: cut}, network.Link{From: cut, To: m})
		}
	}
	return n.resets(fmt.Sprintf("%s, every %s", detail, period), down, up, period), nil
}

// resets alternates between two states of the network until the effect is mended: briefly down, then up for a period.
func (n *Nemesis) resets(detail string, down, up network.State, period time.Duration) effect {
	e := n.again(func(ctx context.Context) error {
		err := n.Net.Set(down)
		workload.Sleep(ctx, resetFor)
		if err == nil {
			err = n.Net.Set(up)
		}
		workload.Sleep(ctx, period)
		return err
	})
	stop := e.mend
	return effect{detail: detail, mend: func() error { return errors.Join(stop(), n.wholeNet()) }}
}
