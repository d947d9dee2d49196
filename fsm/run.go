package fsm

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// run runs the command c.Args in database c.DB, and returns the reply.
func (c *call) run() protocol.Value {
	b := c.lookup(c.Args[0])
	if b == nil || !c.hasCommand(b.row) {
		return unknownCommand(c.Args)
	}
	if !b.acceptsArity(len(c.Args)) {
		return command.ErrArity(c.Args[0])
	}
	if c.refuses(b, c.Args) {
		return c.refusal
	}
	c.Counting = b.counts && !c.Quiet
	return b.do(c)
}

// lookup returns the binding of a command, or nil.
func (c *call) lookup(name string) *binding {
	switch {
	case name == c.wrapper.name: // lastBinding stays the command that the wrapper has
		return c.wrapper
	case c.lastBinding != nil && c.lastBinding.name == name:
		return c.lastBinding
	}
	b := c.ops[name]
	if b != nil {
		c.lastBinding = b
	}
	return b
}

// writes reports whether the command with a name may change the state.
func (c *call) writes(name string) bool {
	b := c.lookup(name)
	return b != nil && b.writes
}

// begin prepares c for a request. number seeds the random decisions of the request, and differs between requests.
func (c *call) begin(r *protocol.Request, number uint64) {
	c.DB, c.conn, c.Args, c.user, c.rules, c.reader = r.DB, r.Conn, r.Args, r.User, r.Rights, nil
	c.Seed, c.Draws, c.stockCauseID = number, 0, 0
}

// do runs a command. It first settles the locks among the keys of the command, and refuses to write a key that is a
// native lock.
func (b *binding) do(c *call) protocol.Value {
	if b.newest > c.EntryVersion {
		c.hideLaterOption(b.row)
	}
	var reply protocol.Value
	switch {
	case b.guarded && c.HasLocks() && c.hasLockKey(b.row):
		if c.OverBudget {
			return command.ErrOverWork
		}
		reply = command.ErrWrongType
	case b.settles && !c.Reading && c.HasLocks() && !c.settleKeys(b):
		return command.ErrOverWork
	case b.of != nil:
		reply = b.of(&c.Call)
	default:
		reply = b.run(c)
	}
	if reply.Kind == protocol.KindError && reply.Str == command.ErrWrongType.Str &&
		b.row != nil {
		return c.wrongType(b)
	}
	return reply
}

// hideLaterOption replaces an option that is newer than the version of the entry by an unknown word. The releases that
// write entries of this version do not know the option.
func (c *call) hideLaterOption(row *protocol.Command) {
	if at, later, _ := protocol.LaterOption(row, c.Args[1:], c.EntryVersion); later != nil {
		c.Args = slices.Clone(c.Args)
		c.Args[1+at] = ""
	}
}

// runRead runs a request that only reads. It charges readBudget and not the budget of the entry's writes, since nodes
// without a waiting client skip the request.
func (c *call) runRead() protocol.Value {
	work, ceiling := c.Work, c.Ceiling
	c.Work, c.Ceiling = 0, c.readBudget.ceiling()
	reply := c.run()
	c.readBudget.left -= c.Work
	c.Work, c.Ceiling = work, ceiling
	return reply
}

// readInEntry is [call.runRead] for a log entry. If the budget does not suffice, the reply is an error. The read does
// not run again in a later entry, since later requests of the batch have then run before it.
func (c *call) readInEntry() protocol.Value {
	reply := c.runRead()
	if c.OverBudget {
		c.OverBudget = false
		return protocol.ErrNoRoom.Value()
	}
	return reply
}

// countLookups adds the key look-ups of a call to the counts of the machine, and resets those of the call.
func (m *machine) countLookups(c *call) {
	if c.Hits > 0 {
		m.hits.Add(c.Hits)
	}
	if c.Misses > 0 {
		m.misses.Add(c.Misses)
	}
	c.Lookups = command.Lookups{}
}
