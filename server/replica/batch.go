package replica

import "github.com/holdfast/holdfast/protocol"

// Batch is what one connection submits at a time: the data commands of one
// pipeline, in order. Of what is no more work than an entry has room for, all is applied in one
// entry, or read at one instant; else the rest follows in later ones.
type Batch struct {
	// Body holds the requests, as protocol.AppendRequest wrote them.
	Body []byte
	// Count is the number of requests in Body.
	Count int
	// Write is set when at least one request must go through the log. The reads
	// beside it then travel in the same entry, and see what stands before them.
	Write bool
	// Replies holds, after Execute returned nil, one reply per request.
	Replies []protocol.Value
	// Number is, after Execute returned nil for a write, what [Replica.AwaitApplied] wants to know.
	Number uint64
}
