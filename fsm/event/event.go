// Package event has the events of the state machine: what an entry did that others than its client receive. The
// packages that pass events on, such as the hub of subscriptions, import this package and not the machine.
//
// Start reading at event.go: an event has a kind, and the fields that the kind names.
package event

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Kind is the kind of an [Event].
type Kind uint8

// The kinds.
const (
	// Published: a client published Payload on the channel Name.
	Published Kind = iota + 1
	// Notified: Name happened to Key in DB, and notify-keyspace-events selects that event.
	Notified
	// Changed: Key in DB was created or removed, or got another value or deadline.
	Changed
	// Flushed: all keys of DB were removed.
	Flushed
	// Woken: the wait of this node's waiter with the ticket Seq has ended. Reply is its reply.
	Woken
	// Swapped: the databases DB and Other were exchanged.
	Swapped
	// Read: a script in a batch of this node has read Key, or has read something and declared Key.
	Read
	// Ran: a batch of this node has run. Its other events come before.
	Ran
	// LockMessage: subscribers of the channel of the lock Key in DB receive Payload.
	LockMessage
	// LockLost: a hold of the lock Key in DB was lost. The event is for the connection Lock.Conn of this node.
	LockLost
	// LockSlow: the connection Lock.Conn of this node has waited long for the lock Key in DB, with or without a grant, or
	// has held the lock for most of its lease before it renewed or released it.
	LockSlow
	// SessionKept: the session Lock.Session is attached to the connection Lock.Conn of this node, with the lease
	// Lock.LeaseMillis.
	SessionKept
	// SessionLeft: the session has ended, or was attached to another connection.
	SessionLeft
	// LocksForced: the command Name in the batch Seq of this node ended holds of Other locks in DB, Key being the first.
	// If Key is empty, it ended those of all locks in DB or, by FLUSHALL, in all databases.
	LocksForced
	// Called: a script in a batch of this node has called a command in DB. Payload has the quoted words. If it is empty,
	// the entry has too many calls, and no more Called events follow.
	Called
	// LocksChanged: the entry made Changes to locks. It is the entry's last event, and the same on all nodes that listen.
	LocksChanged
)

// Event is an event of an entry. The strings may share memory with the entry.
type Event struct {
	Kind    Kind
	Sharded bool // a Published event of SPUBLISH
	// Classes has the settings of notify-keyspace-events. A Notified event has its own class as the only class.
	Classes   Classes
	DB, Other int
	Key       string
	Name      string
	Payload   string
	// Seq is the number of the batch that caused a Changed, Read or Ran event, if the batch is this node's: see
	// [fsm.Machine.SeedReads]. It is 0 for other batches and for events of time. In a Woken event it is the ticket.
	Seq   uint64
	Reply *protocol.Value // of a Woken event
	// Lock describes the hold of a LockLost or LockSlow event, the session of a SessionKept or SessionLeft event, or the
	// waiter for a lock of a Woken event, which then has DB and Key, too.
	Lock *LockNews
	// Forced describes the holds that a LocksForced event reports, as far as the command ended them at once.
	Forced *Forced
	// Changes belongs to a LocksChanged event.
	Changes []LockChange
}

// LockChange is a change of a hold of the lock Key in DB, native or stock, the end of a wait for a native lock, or a
// change of all stock locks of DB. If these were swapped, Other has them now.
type LockChange struct {
	What      string // LockGranted, …
	Stock     bool
	DB, Other int
	Key       string
	// Owner is the owner of the hold or of the wait. Node and Conn are the connection that took or requested the lock, if
	// the log has it. Own is set if the connection is one of this incarnation of this node.
	Owner, Node string
	Conn        int64
	Own         bool
	// Fence and Session are 0 if there is none.
	Fence   int64
	Session uint64
	// Shared is set in a grant or renewal if the lock may have other owners, too.
	Shared bool
	// Count is the number of owners that a hash lost, if they are too many to name. Owner is then empty. In LocksOmitted
	// it is the number of changes.
	Count int
	// AtMillis is Unix time. HeldMillis of a stock lock is the age of its key, even at a grant.
	AtMillis, WaitedMillis, HeldMillis int64
	// Note is the NOTE of a native acquire.
	Note string
	// Reason is the reason for which the hold was lost, or how the wait ended: see fsm/locks.Departure. Command, By and
	// Text describe the command that ended the hold.
	Reason, Command, By, Text string
}

// The changes of a hold, of a wait, or of all stock locks of a database.
const (
	LockGranted   = "granted"
	LockRenewed   = "renewed" // the hold has another connection, session or fence now, or is shared
	LockReleased  = "released"
	LockTaken     = "lost"
	LockWaitEnded = "wait-ended" // without the lock
	LocksFlushed  = "flushed"    // those without an earlier LockTaken are lost, too
	LocksSwapped  = "swapped"
	// LocksOmitted: the entry made more changes than can be reported.
	LocksOmitted = "omitted"
)

// Forced describes the holds that a command ended by force.
type Forced struct {
	Text  string // REASON of LOCK.BREAK
	Holds int    // the number of holds that LOCK.BREAK ended
	// Broken has the first of them.
	Broken []BrokenHold
}

// BrokenHold is a hold that was ended by force.
type BrokenHold struct {
	Key, Owner, Note, Client string
	Fence                    int64
	SinceMillis              int64 // Unix time
}

// LockNews describes a hold, or a wait for one, for a client.
type LockNews struct {
	Owner string
	// Fence is the hold's. After a wait without a grant it is 0.
	Fence int64
	// Reason is the reason for which a hold was lost: "expired", "session", "broken", "flushed", or "unknown" if this node
	// skipped the entries with the reason. In a LockSlow event of a wait without a grant it is how the wait ended: see
	// fsm/locks.Departure.
	Reason string
	// Text is the REASON of the LOCK.BREAK that ended the hold, and By the sender of that or another command. They are
	// empty if unknown.
	Text, By string
	// Conn is the connection of this node that the event is for.
	Conn    int64
	Session uint64
	// WaitedMillis, HeldMillis and LeaseMillis are the durations of the wait, of the hold and of the lease.
	// SinceRenewedMillis is the part of the lease that was used. 0 is unknown.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
}

// The prefixes of channels whose names have a database and a key.
const (
	keyspaceChannel = "__keyspace@"
	lockChannel     = "__lock@"
)

// KeyOf returns the key in the name of a channel, if the channel has one of these prefixes.
func KeyOf(channel string) (key string, ok bool) {
	for _, begin := range [...]string{keyspaceChannel, lockChannel} {
		if rest, found := strings.CutPrefix(channel, begin); found {
			_, key, ok = strings.Cut(rest, "__:")
			return key, ok
		}
	}
	return "", false
}

// Messages calls f with the messages to subscribers for the event, in the order of Redis.
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

// Interest selects the events that a node's sink receives. It does not affect the state.
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

// Classes has the flags of notify-keyspace-events: classes of events, and channels.
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

// classLetters has the letters of the classes in the order of Redis. The classes of "A" come first.
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

// classesOfA has the classes that A stands for.
const classesOfA = ClassGeneric | ClassString | ClassList | ClassSet | ClassHash | ClassZset | ClassExpired | ClassEvicted | ClassStream | ClassModule

// ParseClasses parses the value of notify-keyspace-events.
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

// String returns the value for CONFIG GET. As in Redis, n is not shown beside A.
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
