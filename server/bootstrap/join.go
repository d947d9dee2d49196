package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// join asks the cluster of one of those nodes to take this node in, until it has.
func (n *Node) join(ctx context.Context, contacts []string) error {
	if err := CheckAddr(n.config.Addr); err != nil {
		return fmt.Errorf("%w: say --peer-advertise-addr", err)
	}
	if len(contacts) == 0 {
		return errNowhere
	}
	p := &patience{node: n}
	for {
		met := n.meet(ctx, contacts)
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
			return errNowhere
		}
		if !p.wait(ctx, met, "waiting to join by "+strings.Join(contacts, ", "), strings.Join(reasons, "; ")) {
			return context.Cause(ctx)
		}
	}
}

// twoClusters finds two nodes of different clusters. One that does not answer now is left out.
func twoClusters(met []meeting) (a, b meeting, found bool) {
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

var errNowhere = errors.New("join: all addresses given lead back to this node")

// delayError is why a cluster has not taken this node in yet.
type delayError struct{ err error }

func (e *delayError) Error() string { return e.err.Error() }

// joinAt asks the cluster of the node that was met. The identity says so before: the cluster may take this node in
// although this node hears nothing of that.
func (n *Node) joinAt(ctx context.Context, m meeting) (joined bool, err error) {
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
		// The cluster has not taken this node in, now or before: the folder is as it was.
		err := n.config.Folder.SetIdentity(func(id *store.Identity) { id.ClusterID, id.Joins, id.Votes = "", false, false })
		return false, errors.Join(fmt.Errorf("join cluster %s by %s: refused: %s", m.Cluster, m.addr, refused), err)
	}
	if err := n.config.Folder.SetIdentity(func(id *store.Identity) { id.Joins, id.JoinedAt = false, index }); err != nil {
		return false, err
	}
	n.config.Logger.Info("joined", "cluster", m.Cluster, "by", m.addr, "wants_vote", !n.config.NonVoter)
	return true, nil
}
