package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// call is a command under way, with what the machine knows beside the keys. The same call serves many commands, one
// after another.
type call struct {
	command.Call
	st  *state
	ops bindings
	// programs are what the node has compiled, and users whose rights it has read.
	programs *lua.Cache
	users    *rightsCache
	conn     uint64 // the client's connection at the batch's node; 0: not told
	// rules are what the user of a script may do; empty: everything.
	rules string

	memoryLimit
	acting
	// refusal is why a command may not run, if a function says that it may not.
	refusal protocol.Value
	chance
	meter
	listening
	parking
	watch lockWatch
	// seen is what the node has seen of locks, of a read; nil in an entry: no reply in the log rests on it.
	seen *lockWatch
	from caller
	// taking is the cause of the stock locks that the request takes away; 0: none yet. watched are the watched keys of the
	// transaction under way.
	taking  uint64
	watched string
	// incarnation is the one whose previous incarnations were dropped last. Empty: look at the next batch's.
	incarnation protocol.Origin

	journal journal
	scripts scriptHost

	// latest is the command that was looked up last, since pipelines repeat commands.
	latest   *binding
	prefetch prefetcher
	replies  []protocol.Value // of the batch so far
}

// init makes c a call of the machine.
func (c *call) init(m *machine) {
	c.programs, c.users = &m.programs, &m.users
	c.Host = c
}

// use sets c to a state.
func (c *call) use(st *state, ops bindings) {
	c.st, c.Keys, c.ops = st, &st.Keys, ops
}

// op is the behaviour of a command.
type op func(c *call) protocol.Value

// run executes the command c.args in database c.db.
func (c *call) run() protocol.Value {
	b := c.lookup(c.Args[0])
	if b == nil || !c.knows(b.name) {
		return unknownCommand(c.Args)
	}
	if !b.takes(len(c.Args)) {
		return command.ErrArity(c.Args[0])
	}
	if c.refuses(b, c.Args) {
		return c.refusal
	}
	c.Counting = b.counts && !c.Quiet
	return b.do(c)
}

// lookup returns the behaviour of a command, nil if there is no such command.
func (c *call) lookup(name string) *binding {
	if c.latest != nil && c.latest.name == name {
		return c.latest
	}
	b := c.ops[name]
	if b != nil {
		c.latest = b
	}
	return b
}

// writes reports whether a command has an effect on the state.
func (c *call) writes(name string) bool {
	b := c.lookup(name)
	return b != nil && b.writes
}

// begin sets c to a request. number differs from request to request.
func (c *call) begin(r *protocol.Request, number uint64) {
	c.DB, c.conn, c.Args, c.rules = r.DB, r.Conn, r.Args, r.Rights
	c.Seed, c.Draws, c.taking = number, 0, 0
}
