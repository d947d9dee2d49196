package command

import (
	"github.com/holdfast/holdfast/fsm/event"
)

// EventWork is the work of an event.
const EventWork = 256

// Notify emits the keyspace event name of a key in the call's database, as Redis's notifyKeyspaceEvent does.
func (c *Call) Notify(class event.Classes, name, key string) { c.NotifyIn(c.DB, class, name, key) }

// NotifyIn is [Call.Notify] for any database. Without listeners it costs one test.
func (c *Call) NotifyIn(db int, class event.Classes, name, key string) {
	if c.Keys.Notifies&class != 0 {
		c.notifyKeyspace(db, class, name, key)
	}
}

// notifyKeyspace charges the same work on all nodes, but emits the event only on nodes that listen.
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

// EmitDatabase emits that a database was flushed, or exchanged with other.
func (c *Call) EmitDatabase(kind event.Kind, db, other int) {
	if c.Interest&event.InChanges != 0 {
		c.Events = append(c.Events, event.Event{Kind: kind, DB: db, Other: other})
	}
}

// Lookups counts the keys that commands read, as Redis's lookupKeyRead does. Only the nodes whose clients wait for the
// reply count a request.
type Lookups struct {
	Counting     bool // the lookups of the current command count
	Hits, Misses uint64
}

func (l *Lookups) countLookup(hit bool) {
	if hit {
		l.Hits++
	} else {
		l.Misses++
	}
}
