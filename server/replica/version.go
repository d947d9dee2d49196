package replica

import "github.com/holdfast/holdfast/protocol"

// Origin is this incarnation of the node, as the log names it.
func (r *Replica) Origin() protocol.Incarnation { return r.origin }

// Version is the version of the cluster: of the entries that its leader writes, of what they mean, and of the
// snapshots.
func (r *Replica) Version() byte {
	version, _ := r.machine.Version()
	return version
}

// firstVersion is the version of a leadership's first entry. A log that is empty begins with the version that all
// founders can use.
func (r *Replica) firstVersion() byte {
	version, fresh := r.machine.Version()
	if fresh {
		version = max(version, r.config.FoundingVersion)
	}
	return version
}

// common is the newest version of the log that all members can use now, if that is above the version given. A member
// without a link to this leader counts as one that cannot: nothing but its present process says what it can.
//
// It is a matter of service and not of safety that the answer is right: a node that cannot use a version stops at the
// first entry that has it.
func (r *Replica) common(above byte) byte {
	least := uint64(protocol.EntryVersion)
	if r.config.HoldVersion > 0 {
		least = uint64(r.config.HoldVersion)
	}
	if least <= uint64(above) {
		return 0
	}
	for _, m := range r.node.Configuration().Members {
		if m.ID != r.config.ID {
			least = min(least, r.fromFollowers.Usable(m.ID))
		}
	}
	return byte(least)
}
