package replica

import (
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
	// Duty is set when the batch is the node's own, such as what its clients leave behind. It takes no turn among large
	// ones.
	Duty bool
	// Replies holds, after Execute returned nil, one reply per request.
	Replies []protocol.Value
	// Number is, after Execute returned nil for a write, what [Replica.AwaitApplied] wants to know.
	Number uint64
	// OnNumber, if not nil, is told each number under which a part of a batch with writes is proposed,
	// before that. It must be quick, and not call the replica.
	OnNumber func(number uint64)
}

// What batches are estimated to cost, in units of [fsm.MuchWork]: about nanoseconds on each node.
const (
	requestWork = 1 << 10 // a request, by its words
	byteWork    = 4       // a byte, until it is on the disks of all
	// entryWork is how much large batches of an entry are together; a single one may be more. It bounds how long an entry
	// takes that others wait for, and is many times what an empty entry costs.
	entryWork = 1 << 23
	// maxEntryWork is the same where the round trip takes that long anyway.
	maxEntryWork = 2 * entryWork
)

// estimate is the work of a batch of writes, and 0 for reads.
func (b *Batch) estimate() int64 {
	if !b.Write {
		return 0
	}
	return b.Work + requestWork*int64(b.Count) + byteWork*int64(len(b.Body))
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
