package frontend

import (
	"container/list"
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/tracking"
)

// conn is one client's connection. The fields before memory belong to the connection's own
// goroutine, unless their type says otherwise.
type conn struct {
	srv *Server
	// table has the commands of the port: those of Redis, or those of a Sentinel.
	table *protocol.Table
	ctx   context.Context // the server's
	stream
	profile
	clientState
	limited
	locks lockClient
	// backup is the client's backup, or nil.
	backup Backup
	// parked is the pending reply of the last command, or nil. While it is set, no further command runs.
	parked  *pending
	numbers batchNumbers
	// onNumber is the method value conn.numbered, allocated once.
	onNumber func(number uint64)
	// lastWrite is the number of the last write that was acknowledged.
	lastWrite uint64
	// lastPublish is the number of the last acknowledged write with a PUBLISH, or 0 if the hub has applied it.
	lastPublish uint64

	memory    memoryShare
	admission admission
}

// stream has the bytes of a connection in both directions: input, replies, and messages between the replies. It does
// not know what they mean.
type stream struct {
	srv *Server
	socket
	input
	ending
	outbox
	// w is the memory of the current pipeline, or nil.
	w *work
	// authenticated is set if the client may use buffers of the usual size.
	authenticated bool
	// pushing is set while messages are written, and not replies.
	pushing bool
	// resp is the version of the protocol in which replies and messages are encoded.
	resp int
	// onGrowth is called after buffers have grown, and onStall while the client does not take the output.
	onGrowth func()
	onStall  func(unwritten int)
}

// ending has the reasons to end the connection.
type ending struct {
	// closing ends the connection after the replies so far. disconnected ends it without further output: the client has
	// disconnected, or gets no reply.
	closing, disconnected bool
	// revoked is set, by any goroutine, if the user has lost rights. No further command runs.
	revoked atomic.Bool
	// loading is set while the client's own ACL LOAD runs. The client gets its reply, even if the file revokes its rights.
	loading atomic.Bool
}

// clientState is what the client's commands have set. RESET resets it.
type clientState struct {
	identity
	db          int
	replyMode   replyMode
	executing   bool         // the commands of an EXEC are being answered
	monitoring  bool         // the client is a monitor
	tx          *transaction // nil outside MULTI
	watches     watches
	track       track
	subs        subscriptions
	lastCommand string
}

// work is the memory of a pipeline. It is pooled, since most connections are idle most of the time.
type work struct {
	// in[from:] has arrived and is not parsed yet.
	in     []byte
	from   int
	reader *protocol.Reader
	// commands counts the commands parsed since replies were last written.
	commands int
	// filled is set if the last read used all the free space, so more may have arrived.
	filled bool
	// reserved is the memory of a large command that is arriving, as far as the total has it.
	reserved int

	request request
	batch   replica.Batch
	// slots has the places of the replies. The first placed slots are in the output.
	slots  []slot
	placed int
	local  []byte // encoded replies that follow replies of the batch
	out    []byte // bytes to write
	// unencoded bounds the remaining bytes of a large reply that is being encoded.
	unencoded int
	// replyBytes bounds the memory of the batch's replies, or of a large local reply.
	replyBytes int
	// publishes is set if the batch has a PUBLISH.
	publishes bool
	// numbered is set if the tracking of the client must know the number of the batch.
	numbered bool
	// tx is the transaction whose reply a slotExec waits for.
	tx *transaction
	// began is the time at which the batch was passed to the backend.
	began time.Time
}

// input is the reading side of a connection.
type input struct {
	// born is when the connection began.
	born time.Time
	// arrived is when the last bytes arrived.
	arrived time.Time
	// waitBuffer is the buffer of an idle connection that is no plain socket.
	waitBuffer []byte
	// pendingErr is an error of an earlier read. The next wait returns it.
	pendingErr error
	// readMoreUntil is the deadline for more bytes of the current pipeline.
	readMoreUntil time.Time
	// fresh is set if bytes were read ahead since the buffer was last parsed.
	fresh bool
	// hasDeadline is set if there is a read deadline.
	hasDeadline bool
	// noWait is an argument of readReady, and readErr its result.
	noWait    bool
	readErr   error
	readReady func(fd uintptr) bool
	lastInput lastInput
}

// lastInput is the time of the client's last bytes. It is recorded only for the renewer of sessions.
type lastInput struct {
	// demanded is set, by the connection's goroutine, if the time is recorded.
	demanded bool
	// after is the time since the beginning of the connection, in nanoseconds.
	after atomic.Int64
}

func (h *lastInput) note(born time.Time) {
	if h.demanded {
		h.after.Store(int64(time.Since(born)))
	}
}

// memoryShare is a connection's part of the memory of all clients.
type memoryShare struct {
	counted atomic.Int64
	// pinned is the part that a batch holds while it is being executed.
	pinned atomic.Int64
	// evicted is set if the connection was closed to free memory.
	evicted atomic.Bool
	// noEvict is set by CLIENT NO-EVICT ON.
	noEvict atomic.Bool
	// cut, guarded by Server.mu, is closed when the connection is evicted. It is nil if the connection has never waited.
	cut chan struct{}
}

// replyMode is the setting of CLIENT REPLY.
type replyMode struct {
	off, skip, skipNext bool
}

func (r *replyMode) muted() bool { return r.off || r.skip }

// transaction is the queue of a connection between MULTI and EXEC.
type transaction struct {
	// body has the data commands, and count is their number.
	body  []byte
	count int
	hints protocol.Hints // of the body
	work  int64          // the estimated work of the scripts in the body
	// steps has an element for each queued command, once one of them is answered by this node. Most transactions have no
	// steps.
	steps []step
	// queued counts all queued commands, and bytes is their memory.
	queued, bytes int
	// db is the database of the commands that are queued next, since SELECT may be queued.
	db int
	// aborted is set if a command was refused. EXEC then refuses the transaction.
	aborted bool
	// locks has the lock commands that this node observes, with their places in the body.
	locks []queuedLock
	// looks has the keys that the client may cache from the replies. caching is set if CLIENT CACHING is queued.
	looks   looks
	caching bool
	// shown has the commands for the monitors. They see these when EXEC runs.
	shown []shownCommand
}

// step is a queued command: a data command of the body (request is nil, answered is false), a command that this node
// runs at EXEC, or one that it has answered already.
type step struct {
	request  *request
	answered bool
	reply    protocol.Value
	// judged is set for a script with rights. Its reply has the refusals of the script.
	judged bool
	// published is set if this node computes the reply of a PUBLISH.
	published *published
}

// row returns the row of a command that this node runs, or nil.
func (s *step) row() *row {
	if s.request == nil {
		return nil
	}
	return s.request.row
}

// slotKind is the source of the reply of a slot.
type slotKind uint8

const (
	slotLocal slotKind = iota // bytes of work.local
	slotData                  // the next reply of the batch
	slotWatch                 // the same, which has the marks of watched keys
	slotBlock                 // the same, or the command waits
	slotExec                  // the same, merged with the replies of this node inside MULTI
)

// slot is the place of one command's reply in a pipeline.
type slot struct {
	kind slotKind
	// judged is set for a script with rights. Its reply has the refusals of the script.
	judged bool
	// mute is set if CLIENT REPLY was OFF or SKIP at the command.
	mute bool
	// resp is the protocol version at the command.
	resp uint8
	// from and to bound the bytes of a slotLocal, and the watches of a slotWatch. If this node adds to the reply, from is
	// the database and key the key of the command.
	from, to int
	key      string
	// generation is the generation of the watches at a slotWatch.
	generation int
	row        *row
	// published is set if this node computes the reply of a PUBLISH.
	published *published
	wait      *pending     // of a command that may wait
	lock      *lockCommand // of a lock command, or of a transaction with one
	shown     *transaction // shown to monitors according to the reply
}

// batchNumbers has the numbers of a client's last writes. If another node leads, the event of a batch follows its
// reply.
type batchNumbers struct {
	last [16]atomic.Uint64
	next int // guarded by the backend: a client has one batch at a time
}

// lockClient is the state of a connection that uses native locks.
type lockClient struct {
	// entered is set if the renewer of sessions has the connection.
	entered bool
	// notices has the waits with NOTIFY, by ticket, guarded by outbox.mu. bytes is their memory.
	notices map[uint64]*pending
	bytes   atomic.Int64
}

// admission is the server's record of a connection, guarded by Server.mu.
type admission struct {
	// stranger is the connection's element in Server.strangers until the client has authenticated. If TLS clients need no
	// password, the handshake suffices.
	stranger *list.Element
	// dismissed is set if the connection was closed to make room.
	dismissed bool
	// hidden is set if the client has ended or was killed. The connection is then in no answer any more.
	hidden bool
}

// sentinel reports whether the client uses the port for Sentinel's clients.
func (c *conn) sentinel() bool { return c.table == protocol.Sentinel() }

// track is what the connection tracks for its client's cache. The fields belong to the connection's goroutine.
type track struct {
	client *tracking.Client // nil until the first CLIENT TRACKING ON
	trackMode
	// caching is set by CLIENT CACHING for the next command.
	caching bool
	// busy is set while commands run. Messages are held back until their replies are written.
	busy bool
	// bytes is the memory of the prefixes.
	bytes int
}
