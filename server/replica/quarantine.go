package replica

import (
	"context"
	"io"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/store"
)

// ProposeCheck has every member capture its state at one index of the log: see [Config.OnCapture]. It reports whether
// this node leads, in a cluster whose version has such entries. The entry may be lost with the leadership.
func (r *Replica) ProposeCheck() bool {
	l, version := r.serving.Load(), r.Version()
	if l == nil {
		return false
	}
	stamp, offset := l.clock.read()
	r.propose(l.term, protocol.NewEntry(nil, version, stamp, offset, r.config.EntryLimits).Bytes(), check)
	return true
}

// Reached returns the index of the newest entry in this node's state.
func (r *Replica) Reached() uint64 { return r.state.index.load() }

// Quarantine isolates a node whose state differs from the other members'. It does not apply entries, execute commands
// or lead any more. It still stores the log and votes.
func (r *Replica) Quarantine() {
	r.node.Quarantine()
	r.leadership.poke()
}

// Release ends the quarantine, after [Replica.ReplaceState] or after a leader sent its state.
func (r *Replica) Release() error {
	err := r.node.Release()
	r.leadership.poke()
	return err
}

// Quarantined reports whether the node is in quarantine, and whether its state is still the one that differs.
func (r *Replica) Quarantined() (on, frozen bool) { return r.node.Quarantined() }

// ReplaceState replaces this node's state by the committed state of another member.
func (r *Replica) ReplaceState(ctx context.Context, snapshot store.Snapshot, state io.Reader) error {
	return r.node.ReplaceState(ctx, snapshot, state)
}

// Corrupt makes this node's state differ from the other members', for tests. It applies requests that are not in the
// log.
func (r *Replica) Corrupt(body []byte) error {
	r.state.digesting.Lock()
	defer r.state.digesting.Unlock()
	stamp, offset := r.machine.Clock()
	entry := protocol.NewEntry(nil, r.Version(), stamp, offset, protocol.EntryLimits{})
	entry.Add(protocol.Incarnation{Node: "corrupt", Epoch: r.state.changed + 1}, 1, 1, body)
	return r.machine.Apply(entry.Bytes(), fsm.Discard{})
}
