package bootstrap

import (
	"context"
	"slices"
	"strings"
	"time"
)

// stragglerTimeout is how long a node whose incarnation a majority has admitted waits for the remaining members: the
// only one that knows a later incarnation may be among them.
const stragglerTimeout = 500 * time.Millisecond

// confirmIncarnation exchanges identities with the other members until enough of them have admitted this node's
// incarnation.
func (n *Node) confirmIncarnation(ctx context.Context) error {
	if n.config.Incarnation == nil {
		n.introduce(ctx)
		return nil
	}
	p := &retry{node: n}
	for {
		met := n.exchangeUntilConfirmed(ctx)
		n.checkRemoved(met)
		missing, enough := n.isConfirmed()
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

// isConfirmed reports whether enough members have admitted this node's incarnation: a majority of the voters, this node
// included, or a leader. missing are the names of the other voters. The voters are those of the newest configuration
// that any member has told of, since elections use that one, and this node's own may be older. See
// server/peer/DESIGN.md.
//
// A node without a configuration of its own was added by a cluster, and needs to be admitted by one member.
func (n *Node) isConfirmed() (missing []string, enough bool) {
	by, leader := n.config.Incarnation.Vouched()
	conf := n.newestConfiguration()
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

// exchangeUntilConfirmed exchanges identities with all candidates, and returns at most stragglerTimeout after this
// node's incarnation is confirmed.
func (n *Node) exchangeUntilConfirmed(ctx context.Context) []exchange {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	met := make(chan []exchange, 1)
	go func() { met <- n.exchangeIdentities(ctx, n.candidateAddrs()) }()
	var late <-chan time.Time
	for {
		if _, enough := n.isConfirmed(); enough && late == nil {
			timer := time.NewTimer(stragglerTimeout)
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
