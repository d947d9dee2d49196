package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// The classes of events, by the names that the commands use.
const (
	classEvicted = event.ClassEvicted
	classExpired = event.ClassExpired
	classGeneric = event.ClassGeneric
	classHash    = event.ClassHash
	classList    = event.ClassList
	classMiss    = event.ClassMiss
	classModule  = event.ClassModule
	classNew     = event.ClassNew
	classSet     = event.ClassSet
	classStream  = event.ClassStream
	classString  = event.ClassString
	classZset    = event.ClassZset
)

// eventWork is the work of an event that is told.
const eventWork = 256

// listening is what a call gathers for the sink of the entry.
type listening struct {
	interest event.Interest
	events   []event.Event
	// ended counts the ended keys that the entry removed.
	ended int
	// locked counts for [LockStats].
	locked LockCounts
	// own is this node's session, and ownSeq the number of the batch under way, if the batch is this
	// node's.
	own    protocol.Origin
	ownSeq uint64
	// breaking: a command ends holds by force. broken are the first of them.
	breaking bool
	broken   []event.BrokenHold
	// calledBytes is the size of the Called events so far.
	calledBytes int
}

// mostCalledBytes bounds the Called events of an entry.
const mostCalledBytes = 16 << 20

// keptEvents is the number of events that the memory is kept for.
const keptEvents = 1 << 10

// listen begins an entry.
func (l *listening) listen(i event.Interest) {
	l.interest, l.calledBytes = i, 0
	clear(l.events)
	if l.events = l.events[:0]; cap(l.events) > keptEvents {
		l.events = nil
	}
}

// dropSince drops the events behind the first n, which were undone.
func (l *listening) dropSince(n int) {
	clear(l.events[n:])
	l.events = l.events[:n]
}

// notify tells that name happened to key in the call's database, as Redis's notifyKeyspaceEvent does.
func (c *call) notify(class event.Classes, name, key string) { c.notifyIn(c.db, class, name, key) }

// notifyIn is notify for another database. By default no class is set, which is one test.
func (c *call) notifyIn(db int, class event.Classes, name, key string) {
	if c.st.notifies&class != 0 {
		c.tellNotified(db, class, name, key)
	}
}

// tellNotified charges alike on all nodes, and gathers the event on nodes that listen.
func (c *call) tellNotified(db int, class event.Classes, name, key string) {
	c.spend(eventWork)
	if c.interest&event.InMessages != 0 {
		channels := c.st.notifies & (event.ClassKeyspace | event.ClassKeyevent)
		c.events = append(c.events, event.Event{
			Kind: event.Notified, Classes: class | channels, DB: db, Key: key,
			Name: name,
		})
	}
}

// changed tells that a key changed. Callers test the interest first: each store passes here.
func (c *call) changed(db int, key string) {
	c.events = append(c.events, event.Event{Kind: event.Changed, DB: db, Key: key, Seq: c.ownSeq})
}

// beginBatch notes which batch is next.
func (l *listening) beginBatch(b *protocol.Batch) {
	l.ownSeq = 0
	if b.Origin == l.own {
		l.ownSeq = b.Seq
	}
}

// endBatch tells that a batch of this node was run.
func (l *listening) endBatch() {
	if l.ownSeq != 0 && l.interest&event.InChanges != 0 {
		l.events = append(l.events, event.Event{Kind: event.Ran, Seq: l.ownSeq})
	}
	l.ownSeq = 0
}

// forced tells that a command ended holds of others by force; locks is 0 where they are not counted.
func (c *call) forced(key string, locks int, f event.Forced) {
	if c.ownSeq != 0 {
		f.Broken = c.broken
		c.events = append(c.events, event.Event{
			Kind: event.LocksForced, DB: c.db, Key: key, Name: strings.ToLower(c.args[0]), Other: locks, Seq: c.ownSeq,
			Forced: &f,
		})
	}
	c.broken = nil
}

// look tells which keys a command of the script reads. words is the command line. The first such command tells of the
// declared keys, too: Redis 7.0 has the client track those.
func (h *scriptHost) look(row *protocol.Command, words []string) {
	c := h.call
	if c.ownSeq == 0 || c.interest&event.InChanges == 0 || row.Flags&protocol.FlagReadOnly == 0 {
		return
	}
	if !h.looked {
		h.looked = true
		for _, key := range h.env.Keys {
			c.looked(key)
		}
	}
	line := make([][]byte, len(words))
	for i, w := range words {
		line[i] = []byte(w)
	}
	positions, _ := row.KeyPositions(line)
	for _, p := range positions {
		c.looked(words[p])
	}
}

func (c *call) looked(key string) {
	c.events = append(c.events, event.Event{Kind: event.Looked, DB: c.db, Key: key, Seq: c.ownSeq})
}

// called tells which command a script calls. The work is the same on nodes without listeners: Call has
// charged for the words.
func (c *call) called(words []string) {
	if c.ownSeq == 0 || c.interest&event.InCalls == 0 || c.calledBytes > mostCalledBytes {
		return
	}
	var line []byte
	for _, w := range words {
		line = append(protocol.AppendQuoted(line, w), ' ')
	}
	c.calledBytes += len(line) + eventWork
	e := event.Event{Kind: event.Called, DB: c.db}
	if c.calledBytes <= mostCalledBytes {
		e.Payload = string(line[:len(line)-1])
	}
	c.events = append(c.events, e)
}

// changedDatabase tells that a database was replaced by an empty one, or exchanged with other.
func (c *call) changedDatabase(kind event.Kind, db, other int) {
	if c.interest&event.InChanges != 0 {
		c.events = append(c.events, event.Event{Kind: kind, DB: db, Other: other})
	}
}

func publishOp(c *call) protocol.Value  { return c.publish(false) }
func spublishOp(c *call) protocol.Value { return c.publish(true) }

// publish answers 0: how many clients hear of it, each node knows of its own alone.
func (c *call) publish(sharded bool) protocol.Value {
	c.spend(eventWork)
	if c.interest&event.InMessages != 0 {
		c.events = append(c.events, event.Event{Kind: event.Published, Sharded: sharded, Name: c.args[1], Payload: c.args[2]})
	}
	return zero
}

// notifyOp sets notify-keyspace-events: a request that nodes write for CONFIG SET.
func notifyOp(c *call) protocol.Value {
	if len(c.args) != 2 {
		return errArity(c.args[0])
	}
	cs, ok := event.ParseClasses(c.args[1])
	if !ok {
		return protocol.Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	}
	c.st.notifies = cs
	return protocol.OK
}
