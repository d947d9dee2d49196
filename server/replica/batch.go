package replica

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// Batch is the unit that a connection submits: the data commands of a pipeline, in order. If its work fits into the
// budget of an entry, all commands are applied in one entry, or read at one instant. Otherwise the rest follows in
// later entries.
type Batch struct {
	// Body holds the requests, as protocol.AppendRequest wrote them.
	Body []byte
	// Count is the number of requests in Body.
	Count int
	// Write is set if at least one request must go through the log. The whole batch is then in one entry, and a read sees
	// the writes before it.
	Write bool
	// Census is set if Body is a question that every node answers about its clients; the reply is an array of the answers.
	// An empty Body renews the presence of this node: see [PresenceLease].
	Census bool
	// Hints are for the scheduling of the batch.
	Hints protocol.Hints
	// Work estimates the work of the scripts in the batch: see [fsm.Machine.ScriptWork].
	Work int64
	// Duty is set if the batch is the node's own, such as that of clients that have left. It takes no turn among large
	// ones.
	Duty bool
	// Replies has a reply for each request after Execute has returned nil.
	Replies []protocol.Value
	// Number is the argument for [Replica.AwaitApplied], after Execute has returned nil for a write.
	Number uint64
	// OnNumber, if not nil, is called with the number of each part of a batch with writes, before the part is proposed. It
	// must be quick, and must not call the replica.
	OnNumber func(number uint64)
}

// The estimated work of a batch, in about nanoseconds on each node, as [fsm.MuchWork].
const (
	requestWork = 1 << 10 // of a request
	byteWork    = 4       // of a byte, until it is on the disks of all nodes
	// entryWork bounds the work of the large batches of an entry, unless there is only one. It bounds how long an entry
	// delays others, and is many times the work of an empty entry.
	entryWork = 1 << 23
	// maxEntryWork is entryWork for a round trip that is as long.
	maxEntryWork = 2 * entryWork
)

// estimate returns the work of a batch of writes, and 0 for reads.
func (b *Batch) estimate() int64 {
	if !b.Write {
		return 0
	}
	return b.Work + requestWork*int64(b.Count) + byteWork*int64(len(b.Body))
}

// errReroute never reaches a client: the batch runs again on the node that leads.
var errReroute = forward.ErrElsewhere

// Errors of batches, besides those of protocol.
var (
	errInternal = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errTooLarge = &protocol.Error{
		Prefix: "ERR",
		Text:   "the commands of this pipeline are too large to be applied together",
	}
)
