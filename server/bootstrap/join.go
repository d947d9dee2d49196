package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// join asks the clusters of the contacts to add this node, until one has.
func (n *Node) join(ctx context.Context, contacts []string) error {
	if err := CheckAddr(n.config.Addr); err != nil {
		return fmt.Errorf("%w: say --peer-advertise-addr", err)
	}
	if len(contacts) == 0 {
		return errOnlySelf
	}
	p := &retry{node: n}
	for {
		met := n.exchangeIdentities(ctx, contacts)
		if a, b, torn := twoClusters(met); torn {
			return fmt.Errorf("join: %s at %s is a member of cluster %s, and %s at %s of cluster %s: say addresses of "+
				"one cluster",
				members.Name(a.ID), a.addr, a.Cluster, members.Name(b.ID), b.addr, b.Cluster)
		}
		var reasons []string
		for _, m := range met {
			reason := ""
			switch {
			case m.err != nil:
				reason = m.err.Error()
			case m.Cluster == "":
				reason = "it belongs to no cluster yet"
			default:
				joined, err := n.joinAt(ctx, m)
				if joined || err != nil && !errors.As(err, new(*delayError)) {
					return err
				}
				reason = err.Error()
			}
			reasons = append(reasons, m.addr+": "+reason)
		}
		if len(reasons) == 0 {
			return errOnlySelf
		}
		if !p.wait(ctx, met, "waiting to join by "+strings.Join(contacts, ", "), strings.Join(reasons, "; ")) {
			return context.Cause(ctx)
		}
	}
}

// twoClusters returns two nodes of different clusters, if there are such among those that answered.
func twoClusters(met []exchange) (a, b exchange, found bool) {
	for _, m := range met {
		switch {
		case m.err != nil || m.Cluster == "":
		case a.Cluster == "":
			a = m
		case m.Cluster != a.Cluster:
			return a, m, true
		}
	}
	return a, b, false
}

var errOnlySelf = errors.New("join: all addresses given lead back to this node")

// delayError is a failure to join that may pass.
type delayError struct{ err error }

func (e *delayError) Error() string { return e.err.Error() }

// joinAt asks the cluster of another node to add this one. The folder records the attempt first, as the cluster may add
// this node and the answer be lost.
func (n *Node) joinAt(ctx context.Context, m exchange) (joined bool, err error) {
	own := n.config.Folder.Identity()
	if own.Joins && own.ClusterID != m.Cluster {
		return false,
			fmt.Errorf("this node was about to join cluster %s, and %s belongs to cluster %s: empty this node's folder",
				own.ClusterID, m.addr, m.Cluster)
	}
	if !own.Joins {
		err := n.config.Folder.SetIdentity(func(id *store.Identity) {
			id.ClusterID, id.Joins, id.Votes = m.Cluster, true, !n.config.NonVoter
		})
		if err != nil {
			return false, err
		}
	}
	index, refused, err := n.config.Join(ctx, m.addr, m.Cluster, members.Member{ID: own.ID, Addr: n.config.Addr})
	switch {
	case err != nil:
		return false, &delayError{err}
	case refused != "":
		// The cluster never added this node, so the folder forgets the attempt.
		err := n.config.Folder.SetIdentity(func(id *store.Identity) { id.ClusterID, id.Joins, id.Votes = "", false, false })
		return false, errors.Join(fmt.Errorf("join cluster %s by %s: refused: %s", m.Cluster, m.addr, refused), err)
	}
	if err := n.config.Folder.SetIdentity(func(id *store.Identity) { id.Joins, id.JoinedAt = false, index }); err != nil {
		return false, err
	}
	n.config.Logger.Info("joined", "cluster", m.Cluster, "by", m.addr, "wants_vote", !n.config.NonVoter)
	return true, nil
}
