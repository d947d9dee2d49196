package replica

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// state is the state machine as [raftnode] drives it, on one goroutine.
type state struct {
	r *Replica

	index  watermark     // of the newest entry applied
	stamps watermark     // cluster time
	term   atomic.Uint64 // of the newest entry applied

	// digesting is held while the machine changes: what Digest reads stands still.
	digesting sync.Mutex
	changed   uint64 // index of the newest entry that is in the machine's state

	sink sink
}

var _ raftnode.Machine = (*state)(nil)

func newState(r *Replica) *state { return &state{r: r, sink: sink{r: r}} }

// Apply implements [raftnode.Machine].
func (s *state) Apply(e raftnode.Entry) error {
	s.digesting.Lock()
	err := s.r.machine.Apply(e.Data, &s.sink)
	s.changed = e.Index
	s.digesting.Unlock()
	s.sink.flush()
	if err != nil {
		return err
	}
	stamp, _ := s.r.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	if s.term.Swap(e.Term) != e.Term {
		s.index.reach(e.Index) // the leadership is about to serve, and looks at it
		notify(s.r.leadership.changed)
	}
	counted := len(e.Flags) == 0
	if l := s.r.serving.Load(); counted && l != nil && l.term == e.Term {
		s.r.proposer.landed(l)
	}
	return nil
}

// Reach implements [raftnode.Machine].
func (s *state) Reach(index uint64) {
	s.index.reach(index)
	if s.r.serving.Load() != nil {
		s.r.ticker.nudge()
	}
}

// Capture implements [raftnode.Machine].
func (s *state) Capture() io.WriterTo { return s.r.machine.Snapshot() }

// Restore implements [raftnode.Machine]. What was answered only by entries that the
// snapshot stands for cannot be answered any more.
func (s *state) Restore(snapshot io.Reader, index uint64) error {
	start := time.Now()
	if err := s.replace(snapshot, index); err != nil {
		return err
	}
	stamp, _ := s.r.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	var lost []forward.Completion
	for _, seq := range s.r.writes.numbers() {
		if s.r.machine.Applied(s.r.origin, seq) {
			lost = append(lost, forward.Completion{Number: seq, Err: protocol.ErrUncertain})
		}
	}
	s.r.event(Restored{Took: time.Since(start)}) // before anybody hears of the consequences
	s.r.writes.Complete(lost)
	return nil
}

func (s *state) replace(snapshot io.Reader, index uint64) error {
	s.digesting.Lock()
	defer s.digesting.Unlock()
	if err := s.r.machine.Restore(snapshot); err != nil {
		return err
	}
	if index > 0 {
		s.changed = index
		s.index.reach(index)
	}
	return nil
}

// Digest is a hash of the whole state, and the log index of the last entry that
// changed it: replicas that name the same index must name the same hash. It
// holds up the log while it captures the state, which takes no time to speak of.
func (r *Replica) Digest() (index uint64, hash string) {
	r.state.digesting.Lock()
	index = r.state.changed
	captured := r.machine.Snapshot()
	r.state.digesting.Unlock()
	return index, captured.Hash()
}

// TakeSnapshot captures the state into a snapshot now, whatever the policy says.
func (r *Replica) TakeSnapshot() error { return r.node.TakeSnapshot() }

// sink takes replies from the state machine to whoever waits for them: this
// node's own batches, and those that other nodes forwarded.
type sink struct {
	r       *Replica
	own     []forward.Completion
	touched []*forward.Peer
}

// Wanted implements fsm.Sink.
func (s *sink) Wanted(o protocol.Origin, seq uint64) bool {
	if o == s.r.origin {
		return s.r.writes.Has(seq)
	}
	return s.r.fromFollowers.Peer(o) != nil
}

// Done implements fsm.Sink.
func (s *sink) Done(o protocol.Origin, seq uint64, replies []protocol.Value, applied bool) {
	if o == s.r.origin {
		c := forward.Completion{Number: seq, Replies: replies}
		if !applied {
			// The first copy was in a snapshot that this node installed: it took
			// effect, and nobody can say any more what it answered.
			c.Err = protocol.ErrUncertain
		}
		s.own = append(s.own, c)
		return
	}
	if !applied {
		return // that node has applied, or will apply, the first copy itself
	}
	if p := s.r.fromFollowers.Peer(o); p != nil {
		p.Reply(seq, replies)
		if len(s.touched) == 0 || s.touched[len(s.touched)-1] != p {
			s.touched = append(s.touched, p)
		}
	}
}

// flush hands over what one entry answered.
func (s *sink) flush() {
	if len(s.own) > 0 {
		s.r.writes.Complete(s.own)
		clear(s.own)
		s.own = s.own[:0]
	}
	for _, p := range s.touched {
		p.Flush()
	}
	clear(s.touched)
	s.touched = s.touched[:0]
}
