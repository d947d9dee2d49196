package locks

// Hold describes a hold.
type Hold struct {
	Owner       string
	Fence       uint64
	Mode        Mode
	Count       int64  // acquires minus releases
	Permits     int64  // 0 unless Mode is Permits
	Session     uint64 // 0 if the hold has a lease of its own
	LeftMillis  int64  // the time until the lease ends; -1 if the hold has a session
	LeaseMillis int64  // 0 if the hold has a session
	SinceMillis int64  // cluster time of the grant
	Note        string
	Client      Client
}

// Wait describes a waiter.
type Wait struct {
	Owner          string
	Mode           Mode
	Limit, Permits int64
	Session        uint64
	SinceMillis    int64 // cluster time of the request
	// LeftMillis is the time until the wait ends, or until the grace ends if Absent is set. It is -1 if the wait has no
	// timeout.
	LeftMillis int64
	Absent     bool // the wait ended by time, and the grace keeps the place
	Notify     bool
	Keys       int // the number of keys of the request
	Note       string
	Client     Client
}

// Info describes a lock, with some of its holds and some of its waiters.
type Info struct {
	DB              int
	Key             string
	Mode            Mode   // the mode of all holds
	Holds           []Hold // in the order of their fences
	Waits           []Wait // in the order of the queue
	Holders         int    // the number of all holds
	Waiters         int    // the number of all waiters
	Permits         int64  // the permits of all holds
	DelayLeftMillis int64
}

// Query selects what [Table.List] lists.
type Query struct {
	DB     int    // -1 selects all databases, if Session is set
	Cursor uint64 // where the page begins; 0 for the first page
	Count  int    // the number of locks after which a page ends, including locks that are not listed
	// Most bounds the holds, and also the waits, that are listed for one lock.
	Most int
	// Match reports whether a key is listed. If Match is nil, all keys are listed.
	Match func(key string) bool
	// ByOwner restricts the list to holds and waits of Owner.
	ByOwner bool
	Owner   string
	// Session restricts the list to holds and waits of a session, unless it is 0.
	Session uint64
	// Held restricts the list to holds, and Waiting restricts it to waits. If both are set, or neither, both are listed.
	Held, Waiting bool
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID             uint64
	Name, User     string
	LeaseMillis    int64
	LeftMillis     int64
	OpenedMillis   int64
	Connection     bool // the session is attached to Client
	Client         Client
	Holds, Waiters int
}

// Stats are counts of a table.
type Stats struct {
	Locks, Holds, Waiters, Sessions int
	Bytes                           int64
	Fences                          uint64 // the last fence that was issued
}
