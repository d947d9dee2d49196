// Package event has the events of the state machine, as values: what an entry did that others than its client hear of.
// Who hands them on, such as the hub of subscriptions, imports this package and not the machine.
//
// Start reading at event.go: an event is a kind, and fields that the kind says.
package event

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Kind says what an [Event] tells.
type Kind uint8

// The kinds.
const (
	// Published: a client published Payload on the channel Name.
	Published Kind = iota + 1
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
	// Read: a script in a batch of this node read Key, or read something and had declared Key.
	Read
	// Ran: a batch of this node was run. Its other events stand before.
	Ran
	// LockMessage: Payload happened to the lock Key in DB, for who listens to the channel of the lock.
	LockMessage
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
	// LocksChanged: Changes happened to locks in the entry. It is the entry's last event, and the same on all nodes that
	// listen.
	LocksChanged
)

// Event is something that an entry did and that others than the client hear of. The strings may share
// memory with the entry.
type Event struct {
	Kind    Kind
	Sharded bool // a Published event of SPUBLISH
	// Classes are the settings in force, with the class of a Notified event as the only class.
	Classes   Classes
	DB, Other int
	Key       string
	Name      string
	Payload   string
	// Seq is the number of the batch behind a Changed, Read or Ran event, if the batch is this node's:
	// see [fsm.Machine.SeedReads]. Else Seq is 0, as for what time did.
	// Of a Woken event it is the ticket.
	Seq   uint64
	Reply *protocol.Value // of a Woken event
	// Lock is what a LockLost or LockSlow event says of the hold, a SessionKept or SessionLeft event of the
	// session, or a Woken event of a waiter for a lock: then DB and Key are set too.
	Lock *LockNews
	// Forced is what a LocksForced event says of holds, as far as they ended by the command at once.
	Forced *Forced
	// Changes are of a LocksChanged event.
	Changes []LockChange
}

// LockChange is what happened to a hold of the lock Key in DB, native or stock, to a wait for a native lock, or to all
// stock locks of DB, which Other has now if they were swapped.
type LockChange struct {
	What      string // LockGranted, …
	Stock     bool
	DB, Other int
	Key       string
	// Owner holds, or held, or waited. Node and Conn are the connection that took the lock or asked for it, as far as the
	// log says it. Own: the connection is of this incarnation of this node.
	Owner, Node string
	Conn        int64
	Own         bool
	// Fence and Session are 0 where there is none.
	Fence   int64
	Session uint64
	// Limit is how many owners may hold a lock that was granted or renewed, at once; 0: this is not told.
	Limit int
	// Count is how many owners of a hash no longer hold it, if they are too many to be named: Owner is empty. Of
	// LocksOmitted it is the number of changes.
	Count int
	// AtMillis is Unix time. HeldMillis of a stock lock is the age of its key, also at a grant.
	AtMillis, WaitedMillis, HeldMillis int64
	// Note is the NOTE of a native acquire.
	Note string
	// Reason is why the hold was lost, or how the wait ended: see fsm/locks.Departure. Command, By and Text are of the
	// command that took a hold away.
	Reason, Command, By, Text string
}

// What may happen to a hold, to a wait, or to all stock locks of a database.
const (
	LockGranted   = "granted"
	LockRenewed   = "renewed" // the hold has another connection, session or fence now, or is shared
	LockReleased  = "released"
	LockTaken     = "lost"
	LockWaitEnded = "wait-ended" // without the lock
	LocksFlushed  = "flushed"    // those that had no LockTaken before are lost, too
	LocksSwapped  = "swapped"
	// LocksOmitted: so many changes that followed in the entry were too many to be told.
	LocksOmitted = "omitted"
)

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
	// fsm/locks.Departure.
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

// The beginnings of channels that end with a key, behind a database.
const (
	keyspaceChannel = "__keyspace@"
	lockChannel     = "__lock@"
)

// KeyOf is the key of which the messages of a channel tell, if it is such a channel.
func KeyOf(channel string) (key string, ok bool) {
	for _, begin := range [...]string{keyspaceChannel, lockChannel} {
		if rest, found := strings.CutPrefix(channel, begin); found {
			_, key, ok = strings.Cut(rest, "__:")
			return key, ok
		}
	}
	return "", false
}

// Messages calls f with the messages that subscribers hear of the event, in the order of Redis.
func (e *Event) Messages(f func(channel, payload string)) {
	switch e.Kind {
	case Published:
		f(e.Name, e.Payload)
	case Notified:
		if e.Classes&ClassKeyspace != 0 {
			f(keyspaceChannel+strconv.Itoa(e.DB)+"__:"+e.Key, e.Name)
		}
		if e.Classes&ClassKeyevent != 0 {
			f("__keyevent@"+strconv.Itoa(e.DB)+"__:"+e.Name, e.Key)
		}
	case LockMessage:
		f(lockChannel+strconv.Itoa(e.DB)+"__:"+e.Key, e.Payload)
	}
}

// Interest says which events a node's sink listens to. It shows in no state.
type Interest uint32

const (
	// InMessages is Published, Notified and LockMessage.
	InMessages Interest = 1 << iota
	// InChanges is Changed, Flushed, Swapped, Read and Ran.
	InChanges
	// InCalls is Called.
	InCalls
	// InLocks is LocksChanged.
	InLocks
)

// Classes are the flags of notify-keyspace-events: which events are told, and on which channels.
type Classes uint16

// The classes, with the letters of Redis.
const (
	ClassKeyspace Classes = 1 << iota // K
	ClassKeyevent                     // E
	ClassGeneric                      // g
	ClassString                       // $
	ClassList                         // l
	ClassSet                          // s
	ClassHash                         // h
	ClassZset                         // z
	ClassExpired                      // x
	ClassEvicted                      // e
	ClassStream                       // t
	ClassMiss                         // m
	ClassModule                       // d
	ClassNew                          // n

	AllClasses = ClassNew<<1 - 1
)

// classLetters are the letters of the classes in the order of Redis. The classes of "A" come first.
var classLetters = []struct {
	class  Classes
	letter byte
}{
	{ClassGeneric, 'g'},
	{ClassString, '$'},
	{ClassList, 'l'},
	{ClassSet, 's'},
	{ClassHash, 'h'},
	{ClassZset, 'z'},
	{ClassExpired, 'x'},
	{ClassEvicted, 'e'},
	{ClassStream, 't'},
	{ClassModule, 'd'},
	{ClassNew, 'n'},
	{ClassKeyspace, 'K'},
	{ClassKeyevent, 'E'},
	{ClassMiss, 'm'},
}

// classesOfA are the classes that A stands for.
const classesOfA = ClassGeneric | ClassString | ClassList | ClassSet | ClassHash | ClassZset | ClassExpired | ClassEvicted | ClassStream | ClassModule

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
		b, hidden = append(b, 'A'), classesOfA|ClassNew
	}
	for _, l := range classLetters {
		if cs&^hidden&l.class != 0 {
			b = append(b, l.letter)
		}
	}
	return string(b)
}
