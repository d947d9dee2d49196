package locks

import (
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Table is all locks.
type Table struct {
	now     int64
	steps   int
	effects []Effect
}

// New returns a table without locks.
func New() *Table { return &Table{} }

// Begin says what time it is, and how many steps granting and sweeping may take from here on. Time never
// goes back. To be called as an entry begins and before each request.
func (t *Table) Begin(nowMillis int64, steps int) {
	t.now, t.steps = max(t.now, nowMillis), steps
}

// Steps is what is left of the steps; below zero if the last thing took more than was left.
func (t *Table) Steps() int { return t.steps }

// Acquire asks for the locks of a request.
func (t *Table) Acquire(r *Request) (Answer, error) { return Answer{}, nil }

// Renew gives a hold its lease anew. A hold of a session stays with the session. fence 0: not the owner's.
func (t *Table) Renew(db int, key, owner string, leaseMillis int64) (fence uint64) { return 0 }

// Release gives a hold back once, or altogether. left is how often the owner still holds the lock. ok: the
// lock was the owner's.
func (t *Table) Release(db int, key, owner string, all bool) (left int64, ok bool) { return 0, false }

// ReleaseAll gives holds back altogether, and returns how many there were.
func (t *Table) ReleaseAll(db int, keys []string, owner string) int { return 0 }

// GiveBack gives a hold back altogether whose grant found no client: only if the fence and the client are
// still the hold's.
func (t *Table) GiveBack(db int, key, owner string, fence uint64, client Client) bool { return false }

// Cancel takes the owner's request out of the queue of a key, and with it out of those of its other keys.
func (t *Table) Cancel(db int, key, owner string) bool { return false }

// Downgrade makes an exclusive hold a shared one. fence 0: not the owner's. A shared hold stays one; one of
// permits is ErrMode.
func (t *Table) Downgrade(db int, key, owner string) (fence uint64, err error) { return 0, nil }

// Break ends holds by force, and returns how many.
func (t *Table) Break(b *Break) int { return 0 }

// Flush ends all holds of a database. They count as lost at once, and are worked off by Sweep. The owner
// of the table forgets all markers of the database: see Came.
func (t *Table) Flush(db int) {}

// Unblock ends a wait by its name: LeaveGone tells nobody.
func (t *Table) Unblock(name waits.Name, how protocol.Leave) bool { return false }

// Drop drops the waiters of a node that have a lower name, DropLife those of a life and the ones before.
// They are gone from now on, and removed by Sweep.
func (t *Table) Drop(before waits.Name) {}

// DropLife drops all waiters of a node up to an epoch.
func (t *Table) DropLife(node string, epoch uint64) {}

// OpenSession opens a session with a lease. connection: it lives with the client's connection.
func (t *Table) OpenSession(leaseMillis int64, client Client, connection bool, name string) (id uint64, err error) {
	return 0, nil
}

// KeepAlive renews a session, and returns its lease. ok: it is there.
func (t *Table) KeepAlive(id uint64) (leftMillis int64, ok bool) { return 0, false }

// Attach makes a session live with a connection. ok: it is there.
func (t *Table) Attach(id uint64, client Client) (ok bool, err error) { return false, nil }

// CloseSession ends a session, and returns how many holds end with it. ok: it was there.
func (t *Table) CloseSession(id uint64) (holds int, ok bool) { return 0, false }

// Alive renews all sessions that are attached to connections of a life of a node.
func (t *Table) Alive(o protocol.Origin) {}

// Gone ends the sessions that are attached to a connection, and returns how many. Attached says it before.
func (t *Table) Gone(c Client) int { return 0 }

// Attached is how many sessions are attached to a connection.
func (t *Table) Attached(c Client) int { return 0 }

// Sweep does what is due or unfinished, in the order of time, while there are steps.
func (t *Table) Sweep() {}

// Settle does what is due at a key. Every method that takes a key settles it first.
func (t *Table) Settle(db int, key string) {}

// NextDue is the first instant at which something is due, a millisecond behind its deadline. It lies in
// the past while something is unfinished.
func (t *Table) NextDue() (millis int64, ok bool) { return 0, false }

// DueBetween reports whether anything is due until a later instant that is not due now. DueAt is the same
// of a key; it may say yes without need where many hold.
func (t *Table) DueBetween(after, until int64) bool { return false }

// DueAt is DueBetween of a key.
func (t *Table) DueAt(db int, key string, after, until int64) bool { return false }

// Has reports whether the lock is there: somebody holds it, waits for it, or its delay runs. It is what
// Came and Went tell.
func (t *Table) Has(db int, key string) bool { return false }

// Any reports whether any lock is there in a database.
func (t *Table) Any(db int) bool { return false }

// Holders is how many hold a lock, at most: the price of a Break, and of Info.
func (t *Table) Holders(db int, key string) int { return 0 }

// Check returns the fence of the owner's hold at an instant, 0: not the owner's. It changes nothing.
func (t *Table) Check(db int, key, owner string, nowMillis int64) uint64 { return 0 }

// LeftMillis is what is left of the longest hold of a lock, -1 if that is a session's. ok: somebody holds
// the lock.
func (t *Table) LeftMillis(db int, key string, nowMillis int64) (millis int64, ok bool) {
	return 0, false
}

// Info describes a lock, with so many of its holds and of its waits at most. Nil: there is none.
func (t *Table) Info(db int, key string, nowMillis int64, most int) *Info { return nil }

// List describes the locks of a database in the order of (hash of the key, key). next is the cursor to go
// on from, 0 at the end; looked is how many locks, holds and waits were looked at.
func (t *Table) List(q *Query, nowMillis int64) (rows []Info, next uint64, looked int) {
	return nil, 0, 0
}

// Session describes a session. Nil: there is none.
func (t *Table) Session(id uint64, nowMillis int64) *SessionInfo { return nil }

// Sessions describes the sessions from the id cursor on, so many at most. next is the cursor to go on
// from, 0 at the end.
func (t *Table) Sessions(cursor uint64, count int, nowMillis int64) (rows []SessionInfo, next uint64) {
	return nil, 0
}

// Bytes is what the table counts for.
func (t *Table) Bytes() int64 { return 0 }

// Stats are numbers of the moment.
func (t *Table) Stats() Stats { return Stats{} }

// Copy returns a table that changes of the original do not change, nor the reverse, in constant time. The
// copy has no effects.
func (t *Table) Copy() *Table {
	c := *t
	c.effects = nil
	return &c
}

// Raise makes all fences, and all ids of sessions, that are given out from now on larger by so much.
func (t *Table) Raise(by uint64) {}

// Empty drops all locks and sessions, and keeps what was given out: for a restore from a backup.
func (t *Table) Empty() {}

// Refresh drops all waiters, and gives all leases, of holds and of sessions, anew: for a restore from a
// backup. The time is proportional to the table.
func (t *Table) Refresh() {}

// Writer and Reader are the stream of a snapshot.
type Writer interface {
	Uint(n uint64)
	Int(n int64)
	String(s string)
}

// Reader reads what a Writer wrote. The first error stays; what is read after it is zero.
type Reader interface {
	Uint() uint64
	Int() int64
	String() string
	Err() error
}

// Save writes the table. Equal tables write the same.
func (t *Table) Save(w Writer) {}

// Load reads a table, and believes nothing.
func Load(r Reader) (*Table, error) { return New(), r.Err() }
