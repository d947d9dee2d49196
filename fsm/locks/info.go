package locks

// Hold describes a hold.
type Hold struct {
	Owner   string
	Fence   uint64
	Mode    Mode
	Count   int64 // acquires minus releases
	Permits int64 // 0 unless the mode is Permits
	// Session is the session of the hold. 0: the hold has a lease, with LeftMillis left.
	Session     uint64
	LeftMillis  int64
	LeaseMillis int64 // 0 with a session
	SinceMillis int64 // cluster time of the grant
	Note        string
	Client      Client
}

// Wait describes a waiter.
type Wait struct {
	Owner          string
	Mode           Mode
	Limit, Permits int64
	Session        uint64
	SinceMillis    int64
	// LeftMillis is the time left of the wait, or of the grace if Absent. -1: the wait has no end.
	LeftMillis int64
	Absent     bool
	Notify     bool
	Keys       int // of the request
	Note       string
	Client     Client
}

// Info describes a lock.
type Info struct {
	DB   int
	Key  string
	Mode Mode // of the holds
	// Holds are the first holds by fence, Waits the first waiters in line.
	Holds []Hold
	Waits []Wait
	// Holders, Waiters and Permits count all of them.
	Holders, Waiters int
	Permits          int64
	DelayLeftMillis  int64
}

// Query selects what [Table.List] lists.
type Query struct {
	DB int
	// Cursor is the position of the page, 0 for the first page. Count is the number of locks of a page.
	Cursor uint64
	Count  int
	// Most bounds the holds, and the waits, that are listed of one lock.
	Most int
	// Match selects keys. Nil selects all.
	Match func(key string) bool
	// ByOwner selects the holds and waits of Owner. Session selects those of a session, unless it is 0.
	ByOwner bool
	Owner   string
	Session uint64
	// Held selects holds, Waiting selects waits. Neither selects both.
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
	Fences                          uint64 // issued
}
