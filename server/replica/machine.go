package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/protocol"
)

// state is the state machine as raft drives it. Its methods that raft calls run on
// one goroutine of raft's, Persist beside them on another.
type state struct {
	r *Replica

	index  watermark     // of the newest entry applied
	stamps watermark     // cluster time
	term   atomic.Uint64 // of the newest entry applied

	// digesting is held while the machine changes: what Digest reads stands still.
	digesting sync.Mutex
	changed   uint64 // index of the newest entry that is in the machine's state

	sink   sink
	broken atomic.Bool // an entry could not be applied: nothing is any more
	bytes  int64       // of entries since the last snapshot
	cut    chan struct{}
}

var _ raft.BatchingFSM = (*state)(nil)

func newState(r *Replica) *state {
	return &state{r: r, sink: sink{r: r}, cut: make(chan struct{}, 1)}
}

// Apply is here because raft wants it; raft calls ApplyBatch.
func (s *state) Apply(l *raft.Log) any { return s.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies committed entries, in order.
func (s *state) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type == raft.LogCommand && !s.broken.Load() {
			whole, err := s.r.transport.log.whole(l)
			if err == nil {
				err = s.apply(whole)
			}
			if err != nil {
				s.broken.Store(true)
				s.r.fail(fmt.Errorf("apply log entry %d of term %d: %w", l.Index, l.Term, err))
			}
		}
	}
	if s.broken.Load() {
		return make([]any, len(logs))
	}
	s.index.reach(logs[len(logs)-1].Index)
	if s.r.serving.Load() != nil {
		s.r.ticker.nudge()
	}
	return make([]any, len(logs))
}

func (s *state) apply(l *raft.Log) error {
	term, n := binary.Uvarint(l.Extensions)
	if n <= 0 {
		return errors.New("the entry does not say for which term it was stamped")
	}
	if term != l.Term {
		return nil // stamped by a clock of another leadership, see propose: void on every node
	}
	s.digesting.Lock()
	err := s.r.machine.Apply(l.Data, &s.sink)
	s.changed = l.Index
	s.digesting.Unlock()
	s.sink.flush()
	if err != nil {
		return err
	}
	stamp, _ := s.r.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	if s.term.Swap(l.Term) != l.Term {
		s.index.reach(l.Index) // the helm is about to serve, and looks at it
		notify(s.r.helm.turn)
	}
	counted := len(l.Extensions) == n
	if lead := s.r.serving.Load(); counted && lead != nil && lead.term == l.Term {
		s.r.proposer.landed(lead)
	}
	if s.bytes += int64(len(l.Data)); s.bytes > s.r.config.Snapshots.Bytes {
		s.bytes = 0
		notify(s.cut)
	}
	return nil
}

// Snapshot captures the state; what takes time is in Persist.
func (s *state) Snapshot() (raft.FSMSnapshot, error) {
	if s.broken.Load() {
		return nil, errors.New("the state is not that of the log any more")
	}
	s.bytes = 0
	return &capture{r: s.r, write: s.r.machine.Snapshot().WriteTo}, nil
}

// Restore replaces the state. What was answered only by entries that the
// snapshot stands for cannot be answered any more.
func (s *state) Restore(rc io.ReadCloser) error {
	start := time.Now()
	if err := s.replace(rc); err != nil {
		return err
	}
	s.bytes = 0
	stamp, _ := s.r.machine.Clock()
	s.stamps.reach(uint64(max(stamp, 0)))
	var lost []completion
	for _, seq := range s.r.writes.numbers() {
		if s.r.machine.Applied(s.r.origin, seq) {
			lost = append(lost, completion{number: seq, err: protocol.ErrUncertain})
		}
	}
	s.r.event(Restored{Took: time.Since(start)}) // before anybody hears of the consequences
	s.r.writes.complete(lost)
	return nil
}

func (s *state) replace(rc io.Reader) error {
	s.digesting.Lock()
	defer s.digesting.Unlock()
	if err := s.r.machine.Restore(rc); err != nil {
		return err
	}
	// Raft does not say which snapshot this is: it restores the newest that it can read.
	if stored, err := s.r.config.Stores.Snapshots.List(); err == nil && len(stored) > 0 {
		s.changed = stored[0].Index
		s.index.reach(s.changed)
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
func (r *Replica) TakeSnapshot() error { return r.raft.Snapshot().Error() }

// capture is a captured state on its way to the disk.
type capture struct {
	r     *Replica
	write func(io.Writer) (int64, error)
}

func (c *capture) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	n, err := c.write(&pacedWriter{w: sink, applied: c.r.state.index.load, stop: c.r.stopped})
	if err == nil {
		err = c.r.boundTrailing()
	}
	c.r.event(SnapshotTaken{Bytes: n, Took: time.Since(start), Err: err})
	return err // raft closes or cancels the sink
}

func (c *capture) Release() {}

// sink takes replies from the state machine to whoever waits for them: this
// node's own batches, and those that other nodes forwarded.
type sink struct {
	r       *Replica
	own     []completion
	touched []*inbound
}

// Wanted implements fsm.Sink.
func (s *sink) Wanted(o protocol.Origin, seq uint64) bool {
	if o == s.r.origin {
		return s.r.writes.has(seq)
	}
	return s.r.inbox.linked(o) != nil
}

// Done implements fsm.Sink.
func (s *sink) Done(o protocol.Origin, seq uint64, replies []protocol.Value, applied bool) {
	if o == s.r.origin {
		c := completion{number: seq, replies: replies}
		if !applied {
			// The first copy was in a snapshot that this node installed: it took
			// effect, and nobody can say any more what it answered.
			c.err = protocol.ErrUncertain
		}
		s.own = append(s.own, c)
		return
	}
	if !applied {
		return // that node has applied, or will apply, the first copy itself
	}
	if in := s.r.inbox.linked(o); in != nil {
		in.replyWrite(seq, replies)
		if len(s.touched) == 0 || s.touched[len(s.touched)-1] != in {
			s.touched = append(s.touched, in)
		}
	}
}

// flush hands over what one entry answered.
func (s *sink) flush() {
	if len(s.own) > 0 {
		s.r.writes.complete(s.own)
		clear(s.own)
		s.own = s.own[:0]
	}
	for _, in := range s.touched {
		notify(in.wake)
	}
	clear(s.touched)
	s.touched = s.touched[:0]
}

// cutLog takes a snapshot when entries have grown large rather than many: raft counts them only.
func (s *state) cutLog(ctx context.Context) error {
	for {
		select {
		case <-s.cut:
		case <-ctx.Done():
			return nil
		}
		if err := s.r.raft.Snapshot().Error(); err != nil && ctx.Err() == nil {
			s.r.config.Logger.Warn("take snapshot", "error", err)
		}
	}
}
