package bootstrap

import (
	"context"
	"slices"
	"strings"
	"time"
)

// stragglers is how long a node that has a majority's word waits for the other members': the only one that knows of a
// later incarnation may be among them.
const stragglers = 500 * time.Millisecond

// prove meets the other members until enough of them have admitted this node's incarnation.
func (n *Node) prove(ctx context.Context) error {
	if n.config.Incarnation == nil {
		n.greet(ctx)
		return nil
	}
	p := &patience{node: n}
	for {
		met := n.meetEnough(ctx)
		n.checkRemoved(met)
		missing, enough := n.vouched()
		if enough {
			return n.config.Incarnation.Prove()
		}
		var reasons []string
		for _, m := range met {
			if m.err != nil {
				reasons = append(reasons, m.addr+": "+m.err.Error())
			}
		}
		if !p.wait(ctx, met, "waiting for members to admit this incarnation: "+strings.Join(missing, ", "),
			strings.Join(reasons, "; ")) {
			return nil
		}
	}
}

// vouched reports whether enough members have admitted this node's incarnation: with the node a majority of the voters,
// or a leader. missing are the other voters. The voters are those of the newest configuration that is known to any
// member that was met, since elections go by that: this node's own may be of before it was away. See
// server/peer/DESIGN.md.
//
// A node without a configuration of its own has been taken in by a cluster, and needs the word of one member.
func (n *Node) vouched() (missing []string, enough bool) {
	by, leader := n.config.Incarnation.Vouched()
	conf := n.newest()
	if len(conf.Members) == 0 {
		return []string{"one"}, len(by) > 0
	}
	have := 0
	for _, m := range conf.Members {
		switch {
		case !m.Voter:
		case m.ID == n.config.Folder.Identity().ID, slices.Contains(by, m.ID):
			have++
		default:
			missing = append(missing, m.Name())
		}
	}
	return missing, leader || have >= conf.Quorum()
}

// meetEnough is meet with all that may be members, but waits no longer than stragglers once this node's incarnation is
// vouched for.
func (n *Node) meetEnough(ctx context.Context) []meeting {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	met := make(chan []meeting, 1)
	go func() { met <- n.meet(ctx, n.known()) }()
	var late <-chan time.Time
	for {
		if _, enough := n.vouched(); enough && late == nil {
			timer := time.NewTimer(stragglers)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case all := <-met:
			return all
		case <-late:
			cancel()
		case <-n.wake:
		}
	}
}
