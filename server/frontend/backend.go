package frontend

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/parking"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
)

// Backend is the cluster, as a connection sees it. [replica.Replica] is one.
type Backend interface {
	// Execute runs a batch. It returns nil and a reply for each request, or an error for all
	// requests; a *protocol.Error is sent to the client as it is. The last replies to reads are [protocol.ErrNoRoom]
	// where the replies before took the room or the time: these reads may be executed again. After a nil error the batch's
	// Body is free for reuse. After an error the backend may still hold Body. Replies never share
	// memory with Body.
	Execute(u *replica.Batch) error
	// Compile compiles the source of a script before it is proposed. The error's text is the reply's.
	Compile(source string) error
	// Compiled reports whether Compile takes no time to speak of.
	Compiled(source string) bool
	// Origin is this life of the node, as the log names it.
	Origin() protocol.Origin
	// Parking is the registry of this node's clients that wait for keys.
	Parking() *parking.Registry
	// Sessions is the renewer of the sessions that live with connections of this node.
	Sessions() *sessions.Renewer
	// LockStats counts locks, for INFO.
	LockStats() fsm.LockStats
	// LockClasses counts what happened to locks, by class.
	LockClasses() []fsm.LockClass
	// StockWaiters are the clients that poll for a stock lock.
	StockWaiters(db int, key string) []fsm.StockWaiter
	// Version is the version of the cluster, as this node knows it: commands and forms of requests of later versions must
	// not be used yet. It must be quick.
	Version() byte
	// KnowsVersion reports whether Version is the cluster's: a node that has nothing of the log yet says the oldest.
	KnowsVersion() bool
	// Status is the node's view of the cluster.
	Status() replica.Status
	// WatchLeadership calls f with the leadership as the node knows it and with all members, and again
	// after every change of the leadership, in order. f must be quick, and must not call the backend.
	WatchLeadership(f func(l replica.Leadership, members []replica.Member))
	// Stats counts what the node's copy of the state holds, for INFO.
	Stats() fsm.Stats
	// Listen says which events of the state machine are told from the next entry on, to Config.Hub among
	// others.
	Listen(i event.Interest)
	// AwaitApplied waits until the node's copy of the state has the write with that number
	// (Batch.Number), but no longer than a command may take, and reports whether the write is there.
	AwaitApplied(ctx context.Context, number uint64) bool
	// WaitReplicated waits until n other nodes have every write acknowledged so far, until timeout
	// has passed (0: none), or until ctx has ended, and returns the number of such nodes.
	WaitReplicated(ctx context.Context, n int, timeout time.Duration) int
}
