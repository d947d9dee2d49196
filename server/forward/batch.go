package forward

import (
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Batch is a batch on the way to the leader's log, or a read on the way to the leader.
type Batch struct {
	Origin protocol.Incarnation // the session that numbered the batch
	Low    uint64               // the session retries no batch with a lower number
	Seq    uint64
	Body   []byte
	Count  int // the number of requests in Body; 0 where it is not needed
	// Census is set if Body is a question that the leader has every node answer, instead of requests.
	Census bool
	// Hints are the frontend's. A receiver compiles a batch with [protocol.LargeScript] before it can be taken.
	Hints protocol.Hints
	// Large is set if the batch waits until an entry has room for its work, while small batches pass it, or must not
	// pass earlier large batches. Work is the estimated cost of the batch, 0 where it does not matter.
	Large bool
	Work  int64
}

// Completion answers a batch: with replies, or with an error.
type Completion struct {
	Number  uint64
	Replies []protocol.Value
	Err     error
}

// Batches are the numbered batches of a follower that wait for replies. They have one consumer at a time.
type Batches interface {
	// Attach makes consumer the only consumer, which takes all waiting batches again. A message on wake announces more.
	Attach(consumer any, wake chan<- struct{})
	// Detach removes consumer, unless another consumer is attached.
	Detach(consumer any)
	// Take visits the batches that consumer has not taken yet, in order, until visit returns false; that batch is not
	// taken. visit must not keep the batch. A consumer that was replaced or gets no more answers takes nothing: a batch
	// that was not sent is known not to be applied.
	Take(consumer any, visit func(*Batch) bool)
	// Unanswered returns how long consumer has waited for an answer to any batch that it took, 0 if it waits for none.
	Unanswered(consumer any) time.Duration
	// Has reports whether the batch still waits.
	Has(number uint64) bool
	// Complete answers batches, and ignores those that no longer wait.
	Complete([]Completion)
}

// Identity describes a node in its greeting.
type Identity struct {
	ID    string
	Epoch uint64
	About
}

// About has a node's addresses for clients, its release and its versions of the log. SentinelAddr is empty if the node
// has no port for Sentinel's commands, and Release if it is unknown. NewestVersion is the newest version that the node
// can use, 0 if unknown. HoldVersion is the newest version that its operator permits, 0 for any.
type About struct {
	ClientAddr, SentinelAddr, Release string
	NewestVersion, HoldVersion        uint64
}

// usable returns the newest version of the log that the node can use and its operator permits.
func (a *About) usable() uint64 {
	if a.HoldVersion > 0 {
		return min(a.NewestVersion, a.HoldVersion)
	}
	return a.NewestVersion
}

// Status is the leader's status message to followers.
type Status struct {
	Term, Commit uint64
	Members      []Member
}

// Member is a member of the cluster in a status message.
type Member struct {
	ID string
	About
	Silent   bool   // the leader has not heard from the node for an election timeout
	DiskFull bool   // the node's disk is nearly full
	LogIndex uint64 // the last entry that the node's log is known to share with the leader's, 0 if unknown
}

// notify wakes the goroutine that listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
