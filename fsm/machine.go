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

// machine is the [Machine].
type machine struct {
	ops   bindings // never changed
	byRow *rowBindings
	// programs has the scripts that this node has compiled, and the rights that it has read. It is no part of the state.
	programs lua.Cache
	users    rightsCache
	// costs has the costs of the last runs of scripts on this node. It is no part of the state.
	costs scriptCosts

	// mu guards the fields below. While it is held no other lock is taken, and of other packages only the [Sink] of Apply
	// is called.
	mu       sync.RWMutex
	st       *state
	call     call   // what Apply runs commands with
	expired  uint64 // ended keys removed since the start
	peak     int64  // most bytes of keys and scripts after an entry, since the start
	budgets  budgets
	skipped  []event.Event // of Restore
	verifier verifier

	// version is the version of the state, for callers that must not wait for the present entry.
	version atomic.Uint32
	// readers has the calls that Read runs commands with.
	readers sync.Pool
	// interest is an [Interest].
	interest atomic.Uint32
	// hits and misses count the look-ups of keys since the start, by clients of this node.
	hits, misses atomic.Uint64
	// draws makes RANDOMKEY and math.random differ from one read to the next.
	draws atomic.Uint64
}

// call is the present command, with the parts of the machine that it needs beside the keys. One call serves many
// commands in turn.
type call struct {
	command.Call
	st  *state
	ops bindings
	// byRow has ops by the numbers of their rows, for scripts.
	byRow *rowBindings
	// programs has the scripts that the node has compiled, and the rights that it has read.
	programs *lua.Cache
	users    *rightsCache
	costs    *scriptCosts
	conn     uint64 // the client's connection at the batch's node; 0: not told
	// user is the sender of the script or the lock command. Empty: a user who may do everything. rules are the rights of
	// the user, of a request that is judged by rights (protocol.Reach). Empty: all rights. reader has the rights once they
	// were read.
	user, rules string
	reader      *rights.Rights

	memoryLimit
	// scriptSteps bounds a script, by the newest entry.
	scriptSteps int64
	acting
	// refusal is the reply to a command that a function has refused.
	refusal protocol.Value
	chance
	meter
	listening
	watch lockWatch
	// seen is the node's watch of locks, for a read. It is nil in an entry, since no logged reply depends on it.
	seen *lockWatch
	from caller
	// taking is the cause of the stock locks that the request removes, or 0. watched are the watched keys of the present
	// transaction.
	taking  uint64
	watched string
	// incarnation is the last incarnation whose predecessors' waits have ended. Empty: the next batch has another one.
	incarnation protocol.Incarnation

	journal journal
	scripts scriptHost

	// latest is the last command that was looked up, since pipelines repeat commands.
	latest   *binding
	prefetch prefetcher
	replies  []protocol.Value // of the batch so far
}

// init prepares c as a call of the machine.
func (c *call) init(m *machine) {
	c.byRow, c.programs, c.users, c.costs = m.byRow, &m.programs, &m.users, &m.costs
	c.Host = c
}

// use sets the state of c.
func (c *call) use(st *state, ops bindings) {
	c.st, c.Keys, c.ops = st, &st.Keys, ops
}

// op is the function of a command.
type op func(c *call) protocol.Value

// acting is the user of the present request.
type acting struct {
	// quota has the user's name if the user has a quota.
	quota protocol.Quota
	// opened: the account is new to the user.
	opened bool
	former string
}

// meter counts the work of requests.
type meter struct {
	bounds budgets
	// writeBudget is for requests that write and for the words of all requests, readBudget for reads beyond their words,
	// wakeBudget for waiters that are served.
	writeBudget, readBudget, wakeBudget budget
	// endings is the rest of the entry's budget for changes of native locks, turned the part of it that the lock table
	// has.
	endings, turned int64
}

// chance is the seed of a command's random decisions: its place in the log, so that they differ between commands and
// are the same on all nodes.
type chance struct {
	// origin and seq name the batch. scripted counts the batch's scripts: those that may write, and those that only read.
	origin   protocol.Incarnation
	seq      uint64
	scripted [2]uint64
}

// listening has the events of an entry for its sink.
type listening struct {
	// locked has the counts of [LockStats].
	locked LockCounts
	// own is the incarnation of this node.
	own protocol.Incarnation
	// breaking: the present command ends holds by force. broken has the first of them.
	breaking bool
	broken   []event.BrokenHold
	// calledBytes is the size of the Called events so far.
	calledBytes int
	// changes has the LockChanged events of the entry. The next entry uses its memory again.
	changes []event.LockChange
}

// memoryLimit is the limit of the entry for keys and scripts: limitBytes, if limited.
type memoryLimit struct {
	limited    bool
	limitBytes int64
}

// caller is the sender of the present command.
type caller struct {
	client      locks.Client // zero: a script, or a node of a former release
	ticket      uint64       // 0: the word may not wait
	graceMillis int64
	address     string // of the client; empty: the log does not say it, nor its name
	name        string
}

// scriptHost gives a script access to the keys. It implements [lua.Host].
type scriptHost struct {
	call     *call
	runner   *lua.Runner
	env      lua.Env
	words    []string
	readOnly bool
	// rights are the rights of the user; nil: all. refusals has what was refused.
	rights   *rights.Rights
	refusals []protocol.Refusal
	// from is the savepoint before the script.
	from savepoint
	// full: the state became full, or the user's quota was used up, after the script had written. Further commands are
	// refused, and nothing of the script is kept.
	full bool
	// declaredNoted: the declared keys of the script were emitted as read.
	declaredNoted bool
	command.Script
}
