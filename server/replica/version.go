package replica

import (
	"cmp"
	"iter"

	"github.com/holdfast/holdfast/protocol"
)

// Origin returns this incarnation of the node, as it is in the log.
func (r *Replica) Origin() protocol.Incarnation { return r.origin }

// Version returns the version of the cluster: that of its leader's entries, of their meaning, and of the snapshots.
func (r *Replica) Version() byte {
	version, _ := r.machine.Version()
	return version
}

// firstVersion returns the version of a leadership's first entry. An empty log begins with the version that all
// founders can use.
func (r *Replica) firstVersion() byte {
	version, fresh := r.machine.Version()
	if fresh {
		version = max(version, r.config.FoundingVersion)
	}
	return version
}

// common returns [commonVersion] of the present members. A member without a link to this leader counts as unable to use
// any version, since only its process knows.
func (r *Replica) common(above byte) byte {
	return commonVersion(protocol.EntryVersion, r.config.HoldVersion, above, func(yield func(uint64) bool) {
		for _, m := range r.node.Configuration().Members {
			if m.ID != r.config.ID && !yield(r.fromFollowers.Usable(m.ID)) {
				return
			}
		}
	})
}

// commonVersion returns the newest version of the log that all members can use, if it is above the argument above.
// newest is the leader's version, hold its operator's hold, or 0, and usable has the versions of the others.
//
// A wrong result costs service and not safety: a node that cannot use a version stops at the first entry that has it.
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
