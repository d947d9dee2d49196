package replica

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/invariant"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/raftnode"
)

// state is the state machine. Package [raftnode] drives it on one goroutine.
type state struct {
	machine fsm.Machine
	sink    sink
	stateHooks

	index  watermark     // the newest applied entry
	stamps watermark     // cluster time
	term   atomic.Uint64 // the term of the newest applied entry

	// digesting is held while the machine changes, so that Digest reads a consistent state.
	digesting sync.Mutex
	changed   uint64 // the index of the newest entry in the machine's state
}

// stateHooks has functions that are called at changes of the state.
type stateHooks struct {
	entered  func()            // the first entry of a term was applied
	landed   func(term uint64) // an entry of term that counts was applied
	reached  func()            // all entries that are known to be committed were applied
	restored func(Restored)
	// takes a capture that an entry asked for; nil if states are not compared
	captured func(index uint64, captured fsm.Snapshot)
}

var _ raftnode.Machine = (*state)(nil)

// Apply implements [raftnode.Machine].
func (s *state) Apply(e raftnode.Entry) error {
	if slices.Contains(e.Flags, scripts) {
		s.machine.Prepare(e.Data)
	}
	s.digesting.Lock()
	s.sink.index = e.Index
	err := s.machine.Apply(e.Data, &s.sink)
	s.changed = e.Index
	var captured fsm.Snapshot
	if err == nil {
		captured = s.capture(e.Flags)
	}
	s.digesting.Unlock()
	s.sink.flush()
	if err != nil {
		return err
	}
	if captured != nil {
		s.captured(e.Index, captured)
	}
	stamp, _ := s.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	if s.term.Swap(e.Term) != e.Term {
		s.index.reach(e.Index) // the leadership will serve now, and reads the index
		s.entered()
	}
	if counts(e.Flags) {
		s.landed(e.Term)
	}
	return nil
}

// Reach implements [raftnode.Machine].
func (s *state) Reach(index uint64) {
	s.index.reach(index)
	s.reached()
}

// Capture implements [raftnode.Machine].
func (s *state) Capture() io.WriterTo { return s.machine.Snapshot() }

// Restore implements [raftnode.Machine]. Replies of entries that the snapshot replaces are lost.
func (s *state) Restore(snapshot io.Reader, index uint64) error {
	start, from := time.Now(), s.index.load()
	if err := s.replace(snapshot, index); err != nil {
		return err
	}
	s.sink.descends(s.machine.Incarnation(s.sink.writes.origin.Node))
	stamp, _ := s.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	var lost []forward.Completion
	for _, seq := range s.sink.writes.numbers() {
		if s.machine.Applied(s.sink.writes.origin, seq) {
			lost = append(lost, forward.Completion{Number: seq, Err: protocol.ErrUncertain})
		}
	}
	s.restored(Restored{From: from, Index: index, Took: time.Since(start)}) // before clients get the consequences
	if skipped := s.machine.Skipped(); len(skipped) > 0 {
		s.sink.events(skipped)
	}
	s.sink.writes.Complete(lost)
	return nil
}

func (s *state) replace(snapshot io.Reader, index uint64) error {
	s.digesting.Lock()
	defer s.digesting.Unlock()
	if err := s.machine.Restore(snapshot); err != nil {
		return err
	}
	if index > 0 {
		s.changed = index
		s.index.reach(index)
	}
	return nil
}

// sink passes replies from the state machine to waiting batches, of this node and of others.
type sink struct {
	writes     *queue
	lineage    incarnation.Lineage
	superseded func(incarnation uint64)
	followers  func(protocol.Incarnation) *forward.Peer
	events     func([]event.Event)
	audit      func(index uint64, changes []event.LockChange) // may be nil
	runsReads  func(number uint64) bool
	committed  func() (index uint64, known bool) // the newest entry that this node knows to be committed

	index   uint64        // the entry that is being applied, or 0
	peer    *forward.Peer // the node of the batch in the last call of Wanted, if it is another node
	own     []forward.Completion
	touched []*forward.Peer
}

// Wanted implements fsm.Sink.
func (s *sink) Wanted(o protocol.Incarnation, seq uint64) bool {
	if o == s.writes.origin {
		s.writes.running.Store(seq)
		return s.writes.Has(seq) || s.runsReads(seq)
	}
	s.writes.running.Store(0)
	if o.Node == s.writes.origin.Node {
		s.descends(o.Epoch)
	}
	s.peer = s.followers(o)
	return s.peer != nil
}

// descends handles an incarnation of this node in the log that is later than its own, or of another branch: the data
// folder is an older one that was put back, or a copy.
func (s *sink) descends(known uint64) {
	if !s.lineage.Follows(known) {
		s.superseded(known)
	}
}

// Done implements fsm.Sink. It follows the call of Wanted for the same batch.
func (s *sink) Done(o protocol.Incarnation, seq uint64, replies []protocol.Value, applied bool) {
	if o == s.writes.origin {
		c := forward.Completion{Number: seq, Replies: replies}
		if !applied {
			// A snapshot that this node has installed has the first copy. The batch took effect, but its reply is lost.
			c.Err = protocol.ErrUncertain
		}
		s.own = append(s.own, c)
		return
	}
	if !applied {
		return // that node applies the first copy itself
	}
	s.peer.Reply(seq, replies)
	if len(s.touched) == 0 || s.touched[len(s.touched)-1] != s.peer {
		s.touched = append(s.touched, s.peer)
	}
}

// Events implements fsm.Sink.
func (s *sink) Events(events []event.Event) {
	if last := len(events) - 1; s.audit != nil && events[last].Kind == event.LocksChanged {
		s.audit(s.index, events[last].Changes)
		events = events[:last]
	}
	if len(events) > 0 {
		s.events(events)
	}
}

// flush passes on the replies of an entry.
func (s *sink) flush() {
	if invariant.On && len(s.own)+len(s.touched) > 0 {
		invariant.Require(s.verify())
	}
	if len(s.own) > 0 {
		s.writes.Complete(s.own)
		clear(s.own)
		s.own = s.own[:0]
	}
	for _, p := range s.touched {
		p.Flush()
	}
	clear(s.touched)
	s.touched, s.peer = s.touched[:0], nil
}

// verify returns an error if replies are passed on before their entry is committed.
func (s *sink) verify() error {
	if committed, known := s.committed(); known && (s.index == 0 || s.index > committed) {
		return fmt.Errorf("replies of entry %d are told, and committed is up to %d", s.index, committed)
	}
	return nil
}

// capture captures the state after an entry that asks for it. Requires: digesting is held.
func (s *state) capture(flags []byte) fsm.Snapshot {
	if s.captured == nil || !slices.Contains(flags, check) {
		return nil
	}
	return s.machine.Snapshot()
}
