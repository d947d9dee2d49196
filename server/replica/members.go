package replica

import (
	"context"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Change is a change of a member, see [raftnode.Change].
type Change = raftnode.Change

// Configuration is who the members are, as the log on this node says; the newest entry may not be committed.
func (r *Replica) Configuration() members.Configuration { return r.node.Configuration() }

// CommittedConfiguration is who the members are, as far as this node knows that it is committed.
func (r *Replica) CommittedConfiguration() members.Configuration {
	return r.node.CommittedConfiguration()
}

// Change changes a member, if this node leads, and waits until the change is committed: see [raftnode.Node.Change].
func (r *Replica) Change(ctx context.Context, c Change) (index uint64, err error) {
	return r.node.Change(ctx, c)
}
