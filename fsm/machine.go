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
	// programs are what this node has compiled, and users whose rights it has read; no part of the state.
	programs lua.Cache
	users    rightsCache
	// costs are what scripts cost when they ran last, as this node has seen; no part of the state.
	costs scriptCosts

	// mu guards the fields below. While it is held no other lock is taken, and nothing outside the
	// package is called but the [Sink] of Apply.
	mu       sync.RWMutex
	st       *state
	call     call   // what Apply runs commands with
	expired  uint64 // ended keys removed since the start
	peak     int64  // most bytes of keys and scripts after an entry, since the start
	budgets  budgets
	skipped  []event.Event // of Restore
	verifier verifier

	// version is the state's, for those who must not wait for an entry under way.
	version atomic.Uint32
	// readers are the calls that Read runs commands with.
	readers sync.Pool
	// interest is an [Interest].
	interest atomic.Uint32
	// hits and misses are the lookups of keys since the start, by clients of this node.
	hits, misses atomic.Uint64
	// draws makes RANDOMKEY and math.random differ from one read to the next.
	draws atomic.Uint64
}

// call is a command under way, with what the machine knows beside the keys. The same call serves many commands, one
// after another.
type call struct {
	command.Call
	st  *state
	ops bindings
	// byRow are ops by the numbers of their rows, for scripts.
	byRow *rowBindings
	// programs are what the node has compiled, and users whose rights it has read.
	programs *lua.Cache
	users    *rightsCache
	costs    *scriptCosts
	conn     uint64 // the client's connection at the batch's node; 0: not told
	// user is who sent the script or the lock command; empty: one who may do everything. rules are what the user may do, of
	// a request that is judged by rights (protocol.Reach); empty: everything. reader has read them, once asked.
	user, rules string
	reader      *rights.Rights

	memoryLimit
	// scriptSteps is how long a script may run, by the newest entry.
	scriptSteps int64
	acting
	// refusal is why a command may not run, if a function says that it may not.
	refusal protocol.Value
	chance
	meter
	listening
	watch lockWatch
	// seen is what the node has seen of locks, of a read; nil in an entry: no reply in the log rests on it.
	seen *lockWatch
	from caller
	// taking is the cause of the stock locks that the request takes away; 0: none yet. watched are the watched keys of the
	// transaction under way.
	taking  uint64
	watched string
	// incarnation is the one whose previous incarnations were dropped last. Empty: look at the next batch's.
	incarnation protocol.Incarnation

	journal journal
	scripts scriptHost

	// latest is the command that was looked up last, since pipelines repeat commands.
	latest   *binding
	prefetch prefetcher
	replies  []protocol.Value // of the batch so far
}

// init makes c a call of the machine.
func (c *call) init(m *machine) {
	c.byRow, c.programs, c.users, c.costs = m.byRow, &m.programs, &m.users, &m.costs
	c.Host = c
}

// use sets c to a state.
func (c *call) use(st *state, ops bindings) {
	c.st, c.Keys, c.ops = st, &st.Keys, ops
}

// op is the behaviour of a command.
type op func(c *call) protocol.Value

// acting is the user whose request is under way.
type acting struct {
	// quota has a name if there is such a user.
	quota protocol.Quota
	// opened: the account is new, and was the former user's.
	opened bool
	former string
}

// meter counts the work of requests.
type meter struct {
	bounds budgets
	// writeBudget is for requests that write and for the words of all requests, readBudget for reads beyond their
	// words, wakeBudget for waiters that are served.
	writeBudget, readBudget, wakeBudget budget
	// endings is what is left of the work for locks that end or are granted, and turned what the lock table got of it.
	endings, turned int64
}

// chance is what a command's random decisions follow from: its place in the log, so that they differ
// from command to command and not from node to node.
type chance struct {
	// origin and seq name the batch. scripted counts the batch's scripts so far: scripts that may
	// write, and scripts that only read.
	origin   protocol.Incarnation
	seq      uint64
	scripted [2]uint64
}

// listening is what a call gathers for the sink of the entry.
type listening struct {
	// locked counts for [LockStats].
	locked LockCounts
	// own is this node's session.
	own protocol.Incarnation
	// breaking: a command ends holds by force. broken are the first of them.
	breaking bool
	broken   []event.BrokenHold
	// calledBytes is the size of the Called events so far.
	calledBytes int
	// changes are those of the LockChanged events of the entry: memory for the next one's.
	changes []event.LockChange
}

// memoryLimit is what keys and scripts may take by the entry: limitBytes, if limited.
type memoryLimit struct {
	limited    bool
	limitBytes int64
}

// caller is who sends the word under way.
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
	// rights are what the user may do, nil: everything. refusals are what was refused.
	rights   *rights.Rights
	refusals []protocol.Refusal
	// from is the savepoint before the script.
	from savepoint
	// full: the state became full, or the user's quota was used up, after the script had written. Every further command is
	// refused, and nothing of the script is kept.
	full bool
	// declaredNoted: it is told that the script reads its declared keys.
	declaredNoted bool
	command.Script
}
