package command

import (
	"github.com/holdfast/holdfast/fsm/event"
)

// EventWork is the work of an event that is told.
const EventWork = 256

// Notify tells that name happened to key in the call's database, as Redis's notifyKeyspaceEvent does.
func (c *Call) Notify(class event.Classes, name, key string) { c.NotifyIn(c.DB, class, name, key) }

// NotifyIn is [Call.Notify] for another database. By default no class is set, which is one test.
func (c *Call) NotifyIn(db int, class event.Classes, name, key string) {
	if c.Keys.Notifies&class != 0 {
		c.notifyKeyspace(db, class, name, key)
	}
}

// notifyKeyspace charges alike on all nodes, and gathers the event on nodes that listen.
func (c *Call) notifyKeyspace(db int, class event.Classes, name, key string) {
	c.Spend(EventWork)
	if c.Interest&event.InMessages != 0 {
		channels := c.Keys.Notifies & (event.ClassKeyspace | event.ClassKeyevent)
		c.Events = append(c.Events, event.Event{
			Kind: event.Notified, Classes: class | channels, DB: db, Key: key,
			Name: name,
		})
	}
}

// emitChanged emits that a key changed. Each store calls it, so the callers check the interest first.
func (c *Call) emitChanged(db int, key string) {
	c.Events = append(c.Events, event.Event{Kind: event.Changed, DB: db, Key: key, Seq: c.OwnSeq})
}

// EmitDatabase tells that a database was replaced by an empty one, or exchanged with other.
func (c *Call) EmitDatabase(kind event.Kind, db, other int) {
	if c.Interest&event.InChanges != 0 {
		c.Events = append(c.Events, event.Event{Kind: kind, DB: db, Other: other})
	}
}

// Lookups are the hits and misses of keys, as Redis's lookupKeyRead counts them: what commands look for in
// order to read. A request counts on the nodes whose clients wait for the reply.
type Lookups struct {
	Counting     bool // the command under way counts
	Hits, Misses uint64
}

func (l *Lookups) countLookup(hit bool) {
	if hit {
		l.Hits++
	} else {
		l.Misses++
	}
}
