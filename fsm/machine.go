package fsm

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
)

// machine implements [Machine].
type machine struct {
	ops   bindings // immutable
	byRow *rowBindings
	// The next three fields are caches of this node, and not part of the state.
	programs lua.Cache   // compiled scripts
	users    rightsCache // parsed rights of users
	costs    scriptCosts // the work of the last runs of scripts

	// mu guards the fields below. A goroutine that holds mu takes no other lock. The only calls to the owner of the
	// machine meanwhile are those to the [Sink] of Apply.
	mu       sync.RWMutex
	st       *state
	call     call   // runs the commands of Apply
	expired  uint64 // the number of ended keys that were removed since the start
	peak     int64  // the most bytes that keys and scripts had after an entry, since the start
	budgets  budgets
	skipped  []event.Event // the events of Restore that Skipped has not returned
	verifier verifier

	version      atomic.Uint32 // the version of the state, for callers that must not wait for the current entry
	readers      sync.Pool     // calls that run the commands of Read
	interest     atomic.Uint32 // an event.Interest
	hits, misses atomic.Uint64 // the key look-ups of clients of this node since the start
	draws        atomic.Uint64 // makes RANDOMKEY and math.random differ between reads
}

// call runs commands, one after the other. It has the current command, and the parts of the machine that commands need.
type call struct {
	command.Call
	st       *state
	ops      bindings
	byRow    *rowBindings // the bindings of ops by row number, for scripts
	programs *lua.Cache
	users    *rightsCache
	costs    *scriptCosts
	conn     uint64 // the client's connection at the node of the batch, or 0 if the log entry does not contain it
	// user is the user who sent the script or lock command, or "" for a user with all rights.
	user string
	// rules has the rights of the user if the request is judged by rights (protocol.Reach). If it is "", the user has all
	// rights. reader has the same rights after they were parsed.
	rules  string
	reader *rights.Rights

	memoryLimit
	scriptSteps int64 // bounds the steps of a script
	accounting
	refusal protocol.Value // the reply to a command that was refused
	logPosition
	meter
	entryOutput
	watch lockWatch
	// readWatch is the lockWatch of the node while a read runs. It is nil while a log entry runs, since no reply to a
	// logged request may depend on it.
	readWatch    *lockWatch
	from         caller
	stockCauseID uint64 // the id of the cause for the stock locks that the request removes, or 0
	watched      string // the watched keys of the current transaction
	// incarnation is the incarnation of the last batch. The waits of earlier incarnations of its node have ended.
	incarnation protocol.Incarnation

	journal journal
	scripts scriptHost

	lastBinding *binding // the last command that was looked up, since pipelines repeat commands
	wrapper     *binding // the request that wraps lock commands
	prefetch    prefetcher
	replies     []protocol.Value // the replies of the batch so far
}

// init sets the fields of c that all commands share.
func (c *call) init(m *machine) {
	c.byRow, c.programs, c.users, c.costs = m.byRow, &m.programs, &m.users, &m.costs
	c.wrapper = m.ops["lock-command"]
	c.Host = c
}

// use sets the state and the bindings of c.
func (c *call) use(st *state, ops bindings) {
	c.st, c.Keys, c.ops = st, &st.Keys, ops
}

// op is the function of a command. It returns the reply.
type op func(c *call) protocol.Value

// accounting has the quota and the account of the user of the current request.
type accounting struct {
	quota  protocol.Quota // its user is empty if the user has no quota
	opened bool           // the request has given the account to the user
	former string         // the user who had the account before
}

// meter counts the work of requests.
type meter struct {
	bounds      budgets
	writeBudget budget // for requests that write, and for the price of all requests
	readBudget  budget // for reads, beyond their price
	wakeBudget  budget // for waiters that are served
	// lockWorkLeft is the work that the entry has left for changes of native locks. lockBudget is the budget of the table,
	// in work, after the last setLockBudget or publishLockEvents.
	lockWorkLeft, lockBudget int64
}

// logPosition is the position of the current command in the log, which seeds the random decisions of the command. So
// the decisions differ between commands, and are the same on all nodes.
type logPosition struct {
	origin   protocol.Incarnation // the incarnation that made the batch
	seq      uint64               // the number of the batch
	scripted [2]uint64            // the numbers of scripts of the batch that may write, and of those that only read
}

// entryOutput collects the events of the current entry for the sink, and the counts of this node.
type entryOutput struct {
	locked      LockCounts           // the counts of [LockStats]
	thisNode    protocol.Incarnation // the incarnation of this node
	breaking    bool                 // the current command ends holds by force
	broken      []event.BrokenHold   // the first holds that the command has ended by force
	calledBytes int                  // the size of the Called events of the entry
	omitted     event.LockChange     // a change of a lock beyond those that an entry may tell
}

// memoryLimit is the limit of the entry for the memory of keys and scripts. diskFull refuses what a state at its limit
// does.
type memoryLimit struct {
	diskFull   bool
	limited    bool
	limitBytes int64 // the limit if limited is set
}

// caller is the sender of the current command.
type caller struct {
	client      locks.Client // the zero Client for a script, or if the log entry does not contain the client
	ticket      uint64       // 0 if the command may not wait
	graceMillis int64
	address     string // the address of the client, or "" if the log entry does not contain it
	name        string // the name of the client
}

// scriptHost gives a script access to the keys. It implements [lua.Host].
type scriptHost struct {
	call     *call
	runner   *lua.Runner
	env      lua.Env
	words    []string
	readOnly bool
	rights   *rights.Rights     // the rights of the user, or nil for all rights
	refusals []protocol.Refusal // the commands that were refused for want of rights
	from     savepoint          // taken before the script
	// full is set if the state or the user's quota became full after the script had written. All further commands are then
	// refused, and the script is undone.
	full          bool
	declaredNoted bool // the declared keys of the script were emitted as read
	command.Script
}
