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
	// table has the commands that the client may send: Redis's, or those of a Sentinel.
	table *protocol.Table
	ctx   context.Context // the server's
	stream
	profile
	clientState
	limited
	locks lockClient
	// backup is under way; nil most of the time.
	backup Backup
	// parked: the last command is answered later. nil most of the time.
	parked  *pending
	numbers batchNumbers
	// onNumber is conn.numbered, made once.
	onNumber func(number uint64)
	// lastWrite is the number of the last write that was acknowledged.
	lastWrite uint64
	// lastPublish is the same for the last that published something, 0 when the subscriptions know of it.
	lastPublish uint64

	memory    memoryShare
	admission admission
}

// stream is the bytes of a connection, both ways: input and replies, and messages between the replies. It does not know
// what they mean.
type stream struct {
	srv *Server
	socket
	input
	ending
	outbox
	// w is the memory of the pipeline under way, nil when there is none.
	w *work
	// authenticated: the client may hold buffers of the usual size.
	authenticated bool
	// pushing: messages are being written, not replies.
	pushing bool
	// resp is the version of the protocol in which replies and messages are encoded.
	resp int
	// onGrowth is called when buffers have grown, onStall while the client does not take what is left of the output.
	onGrowth func()
	onStall  func(unwritten int)
}

// ending says how far a connection is from its end.
type ending struct {
	// closing: answer what is there, then close. gone: the client is not there any more.
	closing, gone bool
	// revoked: the user may not do what it did. Nothing more is taken up. Set by any goroutine.
	revoked atomic.Bool
	// loading: the client's own ACL LOAD runs. The client gets its reply, even if that takes its rights.
	loading atomic.Bool
}

// clientState is what the client's commands have set. RESET undoes it.
type clientState struct {
	identity
	db          int
	replyMode   replyMode
	executing   bool         // the commands of an EXEC are being answered
	monitoring  bool         // the client gets the commands of the node: MONITOR
	tx          *transaction // nil outside MULTI
	watches     watches
	track       track
	subs        subscriptions
	lastCommand string
}

// work is the memory of a pipeline. The memory is pooled, because most connections are idle most of
// the time.
type work struct {
	// in[from:] has arrived and is not parsed yet.
	in     []byte
	from   int
	reader *protocol.Reader
	// commands counts the commands parsed since replies were last written.
	commands int
	// filled: the last read used all the free space, so more may have arrived.
	filled bool

	request request
	batch   replica.Batch
	// slots are the places of replies. The first placed slots are in the output.
	slots  []slot
	placed int
	local  []byte // encoded replies that wait for the replies before them
	out    []byte // bytes of replies to be written
	// unencoded bounds the bytes of a large reply that are not in out yet.
	unencoded int
	// replyBytes bounds the memory of the batch's replies, or of a large reply of the node's own.
	replyBytes int
	// publishes: the batch has a PUBLISH.
	publishes bool
	// numbered: the client must know the number of the batch.
	numbered bool
	// tx is the transaction whose reply a slotExec waits for.
	tx *transaction
	// began is when the batch went out.
	began time.Time
}

// input is the reading half of a connection.
type input struct {
	// born is when the connection began.
	born time.Time
	// arrived is when the last bytes arrived.
	arrived time.Time
	// waitBuffer is used while waiting, by a connection that is not a plain socket.
	waitBuffer []byte
	// pendingErr is an error of an earlier read. The next wait returns it.
	pendingErr error
	// readMoreUntil is when waiting for more of the current pipeline ends.
	readMoreUntil time.Time
	// fresh: bytes were read ahead since the buffer was last parsed.
	fresh bool
	// hasDeadline: a read deadline is set.
	hasDeadline bool
	// noWait is an argument of readReady, and readErr its result.
	noWait    bool
	readErr   error
	readReady func(fd uintptr) bool
	lastInput lastInput
}

// lastInput is the time of the client's last bytes. A renewer of sessions may demand it.
type lastInput struct {
	// demanded: the time is noted. Set by the connection's goroutine.
	demanded bool
	// after is the time from the connection's beginning in nanoseconds.
	after atomic.Int64
}

func (h *lastInput) note(born time.Time) {
	if h.demanded {
		h.after.Store(int64(time.Since(born)))
	}
}

// memoryShare is a connection's part of the total.
type memoryShare struct {
	counted atomic.Int64
	// evicted: the connection was cut off to free memory. evicting is the memory that the
	// connection held at that time.
	evicted atomic.Bool
	// noEvict: the client has sent CLIENT NO-EVICT ON.
	noEvict  atomic.Bool
	evicting int64 // guarded by Server.mu
	// found is the memory with the messages that were dropped then.
	found int64
}

// replyMode is what the client chose by CLIENT REPLY.
type replyMode struct {
	off, skip, skipNext bool
}

func (r *replyMode) muted() bool { return r.off || r.skip }

// transaction is the queue of a connection between MULTI and EXEC.
type transaction struct {
	// body has the data commands, count is their number.
	body  []byte
	count int
	hints protocol.Hints // of the body
	work  int64          // of the scripts in the body, as far as it is known and much
	// steps has an element for each queued command, from the first command that this node answers.
	// Most transactions have no such command, and no steps.
	steps []step
	// queued is the number of all queued commands, bytes the memory for these commands.
	queued, bytes int
	// db is the database for the commands that are queued next, as SELECT may be queued.
	db int
	// aborted: a command was refused, so EXEC refuses the transaction.
	aborted bool
	// locks are the lock commands that this node looks after, with their places in the body.
	locks []queuedLock
	// looks are the keys that the client's cache may get from the replies. caching: CLIENT CACHING is
	// among the commands.
	looks   looks
	caching bool
	// shown are the commands as monitors see them when EXEC runs.
	shown []shownCommand
}

// step is one queued command: a data command of the body (request is nil and answered false), a
// command that this node runs, or a command that was answered when queued.
type step struct {
	request  *request
	answered bool
	reply    protocol.Value
	// judged: the reply of a data command has what was refused to a script.
	judged bool
	// published is set for a data command whose reply this node makes.
	published *published
}

// row is the row of a command that this node runs, else nil.
func (s *step) row() *row {
	if s.request == nil {
		return nil
	}
	return s.request.row
}

// slotKind is how a slot gets its reply.
type slotKind uint8

const (
	slotLocal slotKind = iota // bytes of work.local
	slotData                  // the next reply of the batch
	slotWatch                 // the same, with the marks of watched keys
	slotBlock                 // the same, or the mark of a command that waits
	slotExec                  // the same, to be merged with the replies of this node inside MULTI
)

// slot is the place of one command's reply in a pipeline.
type slot struct {
	kind slotKind
	// judged: a script whose request has the rights of the user, and the reply what was refused.
	judged bool
	// mute: CLIENT REPLY was OFF or SKIP when the command came.
	mute bool
	// resp is the protocol version that held when the command came.
	resp uint8
	// from and to bound the bytes of a slotLocal, and the watches of a slotWatch. from is the database of a reply that
	// this node adds to, and key the key that was asked about.
	from, to int
	key      string
	// generation is the generation of the watches when a slotWatch was made.
	generation int
	row        *row
	// published is set when this node makes the reply.
	published *published
	wait      *pending     // of a command that may wait
	lock      *lockCommand // of a lock command, or of a transaction with one
	shown     *transaction // shown to monitors according to the reply
}

// batchNumbers are the numbers of a client's last writes. The event of a batch comes a moment after the reply where
// another node leads.
type batchNumbers struct {
	last [16]atomic.Uint64
	next int // guarded by the backend: a client has one batch at a time
}

// lockClient is a connection as far as native locks go.
type lockClient struct {
	// entered: the renewer of sessions knows the connection.
	entered bool
	// notices are the waits with NOTIFY by their tickets, guarded by outbox.mu. bytes is their memory.
	notices map[uint64]*pending
	bytes   atomic.Int64
}

// admission is the server's record of a connection, guarded by Server.mu.
type admission struct {
	// stranger is the connection's place in Server.strangers, until the client has authenticated.
	// Where TLS needs no password, a handshake is enough.
	stranger *list.Element
	// dismissed: closed to make room.
	dismissed bool
	// hidden: the client has ended, or was killed, and what is left of its connection shows in no answer.
	hidden bool
}

// sentinel reports whether the client came through the port for Sentinel's clients.
func (c *conn) sentinel() bool { return c.table == protocol.Sentinel() }

// track is what the connection tracks for its client's cache. The fields belong to the connection's
// goroutine.
type track struct {
	client *tracking.Client // nil until the first CLIENT TRACKING ON
	trackMode
	// caching: CLIENT CACHING holds for the next command.
	caching bool
	// busy: commands are under way, and messages are held back until their replies are written.
	busy bool
	// bytes is the memory of the prefixes.
	bytes int
}
