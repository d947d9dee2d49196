package replica

import (
	"cmp"
	"iter"

	"github.com/holdfast/holdfast/protocol"
)

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

// common is [commonVersion] of the members now. A member without a link to this leader counts as one that cannot use any
// version: nothing but its present process says what it can.
func (r *Replica) common(above byte) byte {
	return commonVersion(protocol.EntryVersion, r.config.HoldVersion, above, func(yield func(uint64) bool) {
		for _, m := range r.node.Configuration().Members {
			if m.ID != r.config.ID && !yield(r.fromFollowers.Usable(m.ID)) {
				return
			}
		}
	})
}

// commonVersion is the newest version of the log that all members can use, if that is above the version given: newest is
// the leader's, or its operator's hold, unless that is 0, and usable are the others'.
//
// It is a matter of service and not of safety that the answer is right: a node that cannot use a version stops at the
// first entry that has it.
func commonVersion(newest, hold, above byte, usable iter.Seq[uint64]) byte {
	least := uint64(cmp.Or(hold, newest))
	if least <= uint64(above) {
		return 0
	}
	for version := range usable {
		least = min(least, version)
	}
	return byte(least)
}
