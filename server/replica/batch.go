package replica

import (
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// Batch is what a connection submits at a time: the data commands of a pipeline, in order. When the
// work fits the budget of an entry, all commands are applied in one entry, or read at one instant;
// else the rest follows in later entries.
type Batch struct {
	// Body holds the requests, as protocol.AppendRequest wrote them.
	Body []byte
	// Count is the number of requests in Body.
	Count int
	// Write is set when at least one request must go through the log. The other requests of the
	// batch then travel in the same entry, and a read sees the writes before it.
	Write bool
	// Census is set when Body is no request, but a question that every node answers about its clients: the reply is an
	// array of the nodes' answers. Without a question the node's presence is renewed: see [PresenceLease].
	Census bool
	// Hints are for those that schedule the batch.
	Hints protocol.Hints
	// Work is what the scripts in the batch did when they ran last, as far as [fsm.Machine.ScriptWork] says.
	Work int64
	// Replies holds, after Execute returned nil, one reply per request.
	Replies []protocol.Value
	// Number is, after Execute returned nil for a write, what [Replica.AwaitApplied] wants to know.
	Number uint64
	// OnNumber, if not nil, is told each number under which a part of a batch with writes is proposed,
	// before that. It must be quick, and not call the replica.
	OnNumber func(number uint64)
}

// largeBatches lets batches in that are a good part of an entry, in bytes or in work: a few at a time, in the order of
// their arrival. Small batches pass those that wait here. In the queue a hundred large ones would stand before a small
// one, each with an entry of its own. A connection has one batch under way, so connections take turns.
type largeBatches struct {
	least int           // the bytes from which a batch is large; also of a unit of room. Of work it is [fsm.MuchWork]
	room  chan struct{} // holds an element for each unit taken
	turn  chan struct{} // holds an element while a batch takes its units, which others wait for
}

// newLargeBatches has room for two entries: the present entry, and the next.
func newLargeBatches(entryBytes int) *largeBatches {
	return &largeBatches{least: max(entryBytes/16, 1), room: make(chan struct{}, 2*16), turn: make(chan struct{}, 1)}
}

// enter waits until there is room for b, at the deadline at most. The caller calls leave when b is
// answered. The error is a row: b was not applied.
func (l *largeBatches) enter(b *Batch, deadline time.Time) (leave func(), err error) {
	units := min(max(len(b.Body)/l.least, int(b.Work/fsm.MuchWork)), cap(l.room))
	if units == 0 {
		return func() {}, nil
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-late.C:
		return nil, protocol.ErrBusy
	}
	taken := 0
	leave = func() {
		for range taken {
			<-l.room
		}
	}
	for ; taken < units; taken++ {
		select {
		case l.room <- struct{}{}:
		case <-late.C:
			leave()
			return nil, protocol.ErrBusy
		}
	}
	return leave, nil
}

// errReroute never reaches a client: the batch is run again where it belongs.
var errReroute = forward.ErrElsewhere

// Answers to commands without a reply, beside protocol's rows.
var (
	errInternal = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errTooLarge = &protocol.Error{
		Prefix: "ERR",
		Text:   "the commands of this pipeline are too large to be applied together",
	}
)
