package locks

// Hold describes a hold.
type Hold struct {
	Owner       string
	Fence       uint64
	Mode        Mode
	Count       int64  // 1, plus the reentrant requests that were counted, minus the releases
	Permits     int64  // 0 unless Mode is Permits
	Session     uint64 // 0 if the hold has a lease of its own
	LeftMillis  int64  // the time until the lease ends; -1 if the hold has a session
	LeaseMillis int64  // 0 if the hold has a session
	SinceMillis int64  // the cluster time since which the owner has held the lock
	Note        string
	Client      Client
}

// Wait describes a waiter.
type Wait struct {
	Owner          string
	Mode           Mode
	Limit, Permits int64
	Session        uint64
	SinceMillis    int64 // the cluster time at which the wait began
	// LeftMillis is the time until the wait ends, or -1 if the wait has no timeout. If Absent is set, LeftMillis is the
	// time until the grace ends.
	LeftMillis int64
	Absent     bool // the wait has ended by time, and the grace has not ended
	Notify     bool
	Keys       int // the number of keys of the request
	Note       string
	Client     Client
}

// Info describes a lock. Holds and Waits may have only some of the holds and waiters.
type Info struct {
	DB              int
	Key             string
	Mode            Mode   // the mode of all holds
	Holds           []Hold // in the order of their fences
	Waits           []Wait // in the order of the queue
	Holders         int    // the number of all holds
	Waiters         int    // the number of all waiters
	Permits         int64  // the sum of the permits of all holds
	DelayLeftMillis int64
}

// Query selects the locks, holds and waits that [Table.List] lists.
type Query struct {
	DB     int    // the database; if Session is set, -1 selects all databases
	Cursor uint64 // 0 for the first page, or the cursor that List returned with the page before
	// Count is the number of locks after which a page ends. It includes locks that List reads and does not list. If
	// Session is set, Count is a number of holds and queue entries instead.
	Count int
	// MaxRows limits the listed holds of each lock, and also its listed waits.
	MaxRows int
	// Match reports whether a key is listed. If Match is nil, all keys are listed.
	Match func(key string) bool
	// If ByOwner is true, List lists only holds and waits of Owner.
	ByOwner bool
	Owner   string
	// If Session is not 0, List lists only holds and waits of that session.
	Session uint64
	// If only Held is true, List lists only holds. If only Waiting is true, List lists only waits.
	// Otherwise List lists both.
	Held, Waiting bool
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID             uint64
	Name, User     string
	LeaseMillis    int64
	LeftMillis     int64
	OpenedMillis   int64
	Connection     bool // whether the session is attached to Client
	Client         Client
	Holds, Waiters int
}

// Stats are counts of a table.
type Stats struct {
	Locks, Holds, Waiters, Sessions int
	Bytes                           int64
	Fences                          uint64 // the last fence that was issued
}
