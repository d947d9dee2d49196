package replica

import "github.com/holdfast/holdfast/protocol"

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
	// Replies holds, after Execute returned nil, one reply per request.
	Replies []protocol.Value
	// Number is, after Execute returned nil for a write, what [Replica.AwaitApplied] wants to know.
	Number uint64
	// OnNumber, if not nil, is told each number under which a part of a batch with writes is proposed,
	// before that. It must be quick, and not call the replica.
	OnNumber func(number uint64)
}
