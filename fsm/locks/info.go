package locks

// Hold is a hold as others see it.
type Hold struct {
	Owner   string
	Fence   uint64
	Mode    Mode
	Count   int64 // acquires that were not given back
	Permits int64 // 0 unless the mode is Permits
	// Session is the session that the hold is bound to. 0: LeftMillis of its lease are left.
	Session     uint64
	LeftMillis  int64
	LeaseMillis int64 // 0 with a session
	SinceMillis int64 // cluster time of the grant
	Note        string
	Client      Client
}

// Wait is a waiter as others see it.
type Wait struct {
	Owner          string
	Mode           Mode
	Limit, Permits int64
	Session        uint64
	SinceMillis    int64
	// LeftMillis is what is left of the wait; -1: it has no end. Absent: the wait has ended by time, and
	// the place is kept for LeftMillis more.
	LeftMillis int64
	Absent     bool
	Notify     bool
	Keys       int // of the request
	Note       string
	Client     Client
}

// Info is a lock as others see it.
type Info struct {
	DB   int
	Key  string
	Mode Mode // of the holds, if there are any
	// Holds are the first holders by fence, Waits the first waiters in line.
	Holds []Hold
	Waits []Wait
	// Holders, Waiters and Permits are all of them.
	Holders, Waiters int
	Permits          int64
	DelayLeftMillis  int64
}

// Query says what [Table.List] lists.
type Query struct {
	DB int
	// Cursor is where to go on, 0 at first. Count is how many locks are looked at.
	Cursor uint64
	Count  int
	// Most is the most holds, and the most waits, that are returned of one lock.
	Most int
	// Match says which keys are wanted. Nil: all.
	Match func(key string) bool
	// ByOwner: only holds and waits of Owner. Session other than 0: only those of that session.
	ByOwner bool
	Owner   string
	Session uint64
	// Held, Waiting: only holds, only waits. Neither: both.
	Held, Waiting bool
}

// SessionInfo is a session as others see it.
type SessionInfo struct {
	ID             uint64
	Name, User     string
	LeaseMillis    int64
	LeftMillis     int64
	OpenedMillis   int64
	Connection     bool // it lives with the connection Client
	Client         Client
	Holds, Waiters int
}

// Stats are numbers of the moment.
type Stats struct {
	Locks, Holds, Waiters, Sessions int
	Bytes                           int64
	Fences                          uint64 // given out
}
