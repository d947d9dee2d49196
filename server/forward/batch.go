package forward

import (
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Batch is a batch on the way to the leader's log, or a read on the way to the leader.
type Batch struct {
	Origin protocol.Incarnation // the session that numbered the batch
	Low    uint64               // the number below which nothing of the session is retried
	Seq    uint64
	Body   []byte
	Count  int // of the requests in Body; 0 where the number is not needed
	// Census: Body is no requests, but a question that the leader has every node answer.
	Census bool
	// Hints are the frontend's. A receiver has a batch with [protocol.LargeScript] compiled before it can be taken.
	Hints protocol.Hints
	// Large: the batch is much work, and waits until an entry has room for it, while others pass; or it must not pass such
	// batches that were sent before. Work is an estimate of what it costs; 0 where it does not matter.
	Large bool
	Work  int64
}

// Completion answers a batch: with replies, or with an error.
type Completion struct {
	Number  uint64
	Replies []protocol.Value
	Err     error
}

// Batches are the batches that wait on a follower for replies. They are numbered, and have one
// consumer at a time.
type Batches interface {
	// Attach makes consumer the one that takes batches, from the first that waits. A word on wake
	// says that there are more.
	Attach(consumer any, wake chan<- struct{})
	// Detach removes consumer, unless another consumer is attached.
	Detach(consumer any)
	// Take shows consumer the batches that consumer has not taken, in order, until visit returns
	// false: that batch is not taken. Visit must not keep the batch. Another consumer is shown
	// nothing, and so is one that gets no answers any more: what was not sent is surely not applied.
	Take(consumer any, visit func(*Batch) bool)
	// Unanswered is how long consumer has waited for an answer to anything that it took; 0: it waits for none.
	Unanswered(consumer any) time.Duration
	// Has reports whether the batch still waits.
	Has(number uint64) bool
	// Complete answers batches, and passes over batches that no longer wait.
	Complete([]Completion)
}

// Identity is what a node says about itself when opening or accepting a link.
type Identity struct {
	ID    string
	Epoch uint64
	About
}

// About is what others are told of a node: where clients reach the node, and which release runs there. SentinelAddr is
// empty if the node has no port for Sentinel's commands, and Release if that is not known. NewestVersion is the newest
// version of the log that the node can use, 0 if that is not known. HoldVersion is the newest that its operator wants
// yet; 0: any.
type About struct {
	ClientAddr, SentinelAddr, Release string
	NewestVersion, HoldVersion        uint64
}

// usable is the newest version of the log that the cluster may go over to for the node's sake.
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

// Member is a node, and what is told of the node.
type Member struct {
	ID string
	About
	Silent   bool   // the leader has not heard from the node for an election timeout
	LogIndex uint64 // the node's log is known to agree with the leader's up to here; 0: not known
}

// notify wakes the goroutine that listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
