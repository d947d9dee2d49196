package fsm

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// EventKind says what an [Event] tells.
type EventKind uint8

// The kinds.
const (
	// Published: a client published Payload on the channel Name.
	Published EventKind = iota + 1
	// Notified: Name happened to Key in DB, and the settings want that told.
	Notified
	// Changed: Key in DB came, went, or got another value or deadline.
	Changed
	// Flushed: all keys of DB went.
	Flushed
	// Woken: the wait of this node's waiter with the ticket Seq is over, with Reply.
	Woken
	// Swapped: the databases DB and Other were exchanged.
	Swapped
	// Looked: a script in a batch of this node read Key, or read something and had declared Key.
	Looked
	// Ran: a batch of this node was run. Its other events stand before.
	Ran
	// LockTold: Payload happened to the lock Key in DB, for who listens to the channel of the lock.
	LockTold
	// LockLost: a hold of the lock Key in DB is lost, and the connection Lock.Conn of this node is to be
	// told.
	LockLost
	// LockSlow: the connection Lock.Conn of this node waited long for the lock Key in DB, with or without a grant, or
	// held the lock for most of its lease before renewing or releasing it.
	LockSlow
	// SessionKept: the session Lock.Session lives with the connection Lock.Conn of this node, under the lease
	// Lock.LeaseMillis.
	SessionKept
	// SessionLeft: the session has ended, or lives with another connection.
	SessionLeft
	// LocksForced: the command Name in the batch Seq of this node ended holds of Other locks in DB, Key the first
	// of them; or, without Key, of all locks in DB or, by FLUSHALL, in all databases.
	LocksForced
	// Called: a script in a batch of this node called a command in DB. Payload has the words, quoted. Without
	// Payload the scripts of the entry called too much to tell more.
	Called
)

// Event is something that an entry did and that others than the client hear of. The strings may share
// memory with the entry.
type Event struct {
	Kind    EventKind
	Sharded bool // a Published event of SPUBLISH
	// Classes are the settings in force, with the class of a Notified event as the only class.
	Classes   Classes
	DB, Other int
	Key       string
	Name      string
	Payload   string
	// Seq is the number of the batch behind a Changed, Looked or Ran event, if the batch is this node's:
	// see [Machine.SeedReads]. Else Seq is 0, as for what time did.
	// Of a Woken event it is the ticket.
	Seq   uint64
	Reply *protocol.Value // of a Woken event
	// Lock is what a LockLost or LockSlow event says of the hold, a SessionKept or SessionLeft event of the
	// session, or a Woken event of a waiter for a lock: then DB and Key are set too.
	Lock *LockNews
	// Forced is what a LocksForced event says of holds, as far as they ended by the command at once.
	Forced *Forced
}

// Forced is what a command took away by force.
type Forced struct {
	Text  string // REASON of LOCK.BREAK
	Holds int    // all of LOCK.BREAK
	// Broken are the first of them.
	Broken []BrokenHold
}

// BrokenHold is a hold that ended by force.
type BrokenHold struct {
	Key, Owner, Note, Client string
	Fence                    int64
	SinceMillis              int64 // Unix time
}

// LockNews is what a client hears of a hold, or of a wait for one.
type LockNews struct {
	Owner string
	// Fence is the hold's. Of a wait that ended without a grant it is 0.
	Fence int64
	// Reason is why a hold was lost: "expired", "session", "broken", "flushed", or "unknown" if this node
	// skipped the entries that say why. Of a LockSlow event of a wait without a grant it is how the wait ended: see
	// [locks.Departure].
	Reason string
	// Text is the REASON of the LOCK.BREAK that took the hold away, and By who gave that, or another command; empty:
	// not known.
	Text, By string
	// Conn is the connection of this node that is to be told.
	Conn    int64
	Session uint64
	// WaitedMillis, HeldMillis and LeaseMillis are how long the owner waited, held the lock, and might have held it;
	// SinceRenewedMillis of the lease were used up. 0: not known.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
}

// Messages calls f with the messages that subscribers hear of the event, in the order of Redis.
func (e *Event) Messages(f func(channel, payload string)) {
	switch e.Kind {
	case Published:
		f(e.Name, e.Payload)
	case Notified:
		if e.Classes&ClassKeyspace != 0 {
			f("__keyspace@"+strconv.Itoa(e.DB)+"__:"+e.Key, e.Name)
		}
		if e.Classes&ClassKeyevent != 0 {
			f("__keyevent@"+strconv.Itoa(e.DB)+"__:"+e.Name, e.Key)
		}
	case LockTold:
		f("__lock@"+strconv.Itoa(e.DB)+"__:"+e.Key, e.Payload)
	}
}

// Interest says which events a node's sink listens to. It shows in no state.
type Interest uint32

const (
	// InMessages is Published, Notified and LockTold.
	InMessages Interest = 1 << iota
	// InChanges is Changed, Flushed, Swapped, Looked and Ran.
	InChanges
	// InCalls is Called.
	InCalls
)

// Classes are the flags of notify-keyspace-events: which events are told, and on which channels.
type Classes uint16

// The classes, with the letters of Redis.
const (
	ClassKeyspace Classes = 1 << iota // K
	ClassKeyevent                     // E
	classGeneric                      // g
	classString                       // $
	classList                         // l
	classSet                          // s
	classHash                         // h
	classZset                         // z
	classExpired                      // x
	classEvicted                      // e
	classStream                       // t
	classMiss                         // m
	classModule                       // d
	classNew                          // n

	allClasses = classNew<<1 - 1
)

// eventWork is the work of an event that is told.
const eventWork = 256

// listening is what a call gathers for the sink of the entry.
type listening struct {
	interest Interest
	events   []Event
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
	broken   []BrokenHold
	// calledBytes is the size of the Called events so far.
	calledBytes int
}

// mostCalledBytes bounds the Called events of an entry.
const mostCalledBytes = 16 << 20

// keptEvents is the number of events that the memory is kept for.
const keptEvents = 1 << 10

// listen begins an entry.
func (l *listening) listen(i Interest) {
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
func (c *call) notify(class Classes, name, key string) { c.notifyIn(c.db, class, name, key) }

// notifyIn is notify for another database. By default no class is set, which is one test.
func (c *call) notifyIn(db int, class Classes, name, key string) {
	if c.st.notifies&class != 0 {
		c.tellNotified(db, class, name, key)
	}
}

// tellNotified charges alike on all nodes, and gathers the event on nodes that listen.
func (c *call) tellNotified(db int, class Classes, name, key string) {
	c.spend(eventWork)
	if c.interest&InMessages != 0 {
		channels := c.st.notifies & (ClassKeyspace | ClassKeyevent)
		c.events = append(c.events, Event{Kind: Notified, Classes: class | channels, DB: db, Key: key, Name: name})
	}
}

// changed tells that a key changed. Callers test the interest first: each store passes here.
func (c *call) changed(db int, key string) {
	c.events = append(c.events, Event{Kind: Changed, DB: db, Key: key, Seq: c.ownSeq})
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
	if l.ownSeq != 0 && l.interest&InChanges != 0 {
		l.events = append(l.events, Event{Kind: Ran, Seq: l.ownSeq})
	}
	l.ownSeq = 0
}

// forced tells that a command ended holds of others by force; locks is 0 where they are not counted.
func (c *call) forced(key string, locks int, f Forced) {
	if c.ownSeq != 0 {
		f.Broken = c.broken
		c.events = append(c.events, Event{
			Kind: LocksForced, DB: c.db, Key: key, Name: strings.ToLower(c.args[0]), Other: locks, Seq: c.ownSeq, Forced: &f,
		})
	}
	c.broken = nil
}

// look tells which keys a command of the script reads. words is the command line. The first such command tells of the
// declared keys, too: Redis 7.0 has the client track those.
func (h *scriptHost) look(row *protocol.Command, words []string) {
	c := h.call
	if c.ownSeq == 0 || c.interest&InChanges == 0 || row.Flags&protocol.FlagReadOnly == 0 {
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
	c.events = append(c.events, Event{Kind: Looked, DB: c.db, Key: key, Seq: c.ownSeq})
}

// called tells which command a script calls. The work is the same on nodes without listeners: Call has
// charged for the words.
func (c *call) called(words []string) {
	if c.ownSeq == 0 || c.interest&InCalls == 0 || c.calledBytes > mostCalledBytes {
		return
	}
	var line []byte
	for _, w := range words {
		line = append(protocol.AppendQuoted(line, w), ' ')
	}
	c.calledBytes += len(line) + eventWork
	e := Event{Kind: Called, DB: c.db}
	if c.calledBytes <= mostCalledBytes {
		e.Payload = string(line[:len(line)-1])
	}
	c.events = append(c.events, e)
}

// changedDatabase tells that a database was replaced by an empty one, or exchanged with other.
func (c *call) changedDatabase(kind EventKind, db, other int) {
	if c.interest&InChanges != 0 {
		c.events = append(c.events, Event{Kind: kind, DB: db, Other: other})
	}
}

func publishOp(c *call) protocol.Value  { return c.publish(false) }
func spublishOp(c *call) protocol.Value { return c.publish(true) }

// publish answers 0: how many clients hear of it, each node knows of its own alone.
func (c *call) publish(sharded bool) protocol.Value {
	c.spend(eventWork)
	if c.interest&InMessages != 0 {
		c.events = append(c.events, Event{Kind: Published, Sharded: sharded, Name: c.args[1], Payload: c.args[2]})
	}
	return zero
}

// classLetters are the letters of the classes in the order of Redis. The classes of "A" come first.
var classLetters = []struct {
	class  Classes
	letter byte
}{
	{classGeneric, 'g'},
	{classString, '$'},
	{classList, 'l'},
	{classSet, 's'},
	{classHash, 'h'},
	{classZset, 'z'},
	{classExpired, 'x'},
	{classEvicted, 'e'},
	{classStream, 't'},
	{classModule, 'd'},
	{classNew, 'n'},
	{ClassKeyspace, 'K'},
	{ClassKeyevent, 'E'},
	{classMiss, 'm'},
}

// classesOfA are the classes that A stands for.
const classesOfA = classGeneric | classString | classList | classSet | classHash | classZset | classExpired | classEvicted | classStream | classModule

// ParseClasses reads the value of notify-keyspace-events.
func ParseClasses(letters string) (cs Classes, ok bool) {
	for i := range len(letters) {
		class := classesOfA
		if letters[i] != 'A' {
			class = 0
			for _, l := range classLetters {
				if l.letter == letters[i] {
					class = l.class
				}
			}
		}
		if class == 0 {
			return 0, false
		}
		cs |= class
	}
	return cs, true
}

// String is the value as CONFIG GET shows it. As in Redis, n does not show beside A.
func (cs Classes) String() string {
	var b []byte
	hidden := Classes(0)
	if cs&classesOfA == classesOfA {
		b, hidden = append(b, 'A'), classesOfA|classNew
	}
	for _, l := range classLetters {
		if cs&^hidden&l.class != 0 {
			b = append(b, l.letter)
		}
	}
	return string(b)
}

// notifyOp sets notify-keyspace-events: a request that nodes write for CONFIG SET.
func notifyOp(c *call) protocol.Value {
	if len(c.args) != 2 {
		return errArity(c.args[0])
	}
	cs, ok := ParseClasses(c.args[1])
	if !ok {
		return protocol.Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	}
	c.st.notifies = cs
	return protocol.OK
}
