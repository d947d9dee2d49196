package replica

import (
	"context"
	"io"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/store"
)

// ProposeCheck has every member capture its state at one index of the log: see [Config.OnCapture]. It reports whether
// this node leads a cluster that does so. The entry may get lost with the leadership.
func (r *Replica) ProposeCheck() bool {
	l, version := r.serving.Load(), r.Version()
	if l == nil {
		return false
	}
	stamp, offset := l.clock.read()
	r.propose(l.term, protocol.NewEntry(nil, version, stamp, offset, r.config.EntryLimits).Bytes(), check)
	return true
}

// Reached is the index of the newest entry that is in this node's state.
func (r *Replica) Reached() uint64 { return r.state.index.load() }

// Quarantine keeps a node whose state differs from the other members' from harm: its state stands still, it answers
// nothing from it and takes no commands, and it leads no more. It goes on to store the log and to vote.
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

// ReplaceState puts the committed state of another member in the place of this node's.
func (r *Replica) ReplaceState(ctx context.Context, snapshot store.Snapshot, state io.Reader) error {
	return r.node.ReplaceState(ctx, snapshot, state)
}

// Corrupt makes this node's state differ from the other members', for tests: it applies requests that are in no log.
func (r *Replica) Corrupt(body []byte) error {
	r.state.digesting.Lock()
	defer r.state.digesting.Unlock()
	stamp, offset := r.machine.Clock()
	entry := protocol.NewEntry(nil, r.Version(), stamp, offset, protocol.EntryLimits{})
	entry.Add(protocol.Incarnation{Node: "corrupt", Epoch: r.state.changed + 1}, 1, 1, body)
	return r.machine.Apply(entry.Bytes(), noSink{})
}

// noSink takes nothing.
type noSink struct{}

func (noSink) Wanted(protocol.Incarnation, uint64) bool                  { return false }
func (noSink) Done(protocol.Incarnation, uint64, []protocol.Value, bool) {}
func (noSink) Events([]event.Event)                                      {}
