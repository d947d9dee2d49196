//go:build !mutants

package mutant

// The mistakes that a server can have.
const (
	// StaleRead: a leader reads without asking a majority whether it still leads.
	StaleRead = false
	// EarlyAck: commands are applied and answered when they are given to raft.
	EarlyAck = false
	// WallLease: leases run by the time of day of the leader.
	WallLease = false
	// NoDedup: a batch that is in the log twice is applied twice.
	NoDedup = false
	// LostWakeup: a key that gets an element does not serve the clients that wait for it.
	LostWakeup = false
	// ServedTwice: a waiter that was served stays in the queue.
	ServedTwice = false
	// MessageOrder: messages of one entry reach a subscriber the other way round.
	MessageOrder = false
	// MissedInvalidation: a node does not tell its clients of what others of its own clients wrote.
	MissedInvalidation = false
	// EarlyInvalidation: a node tells its clients of a write before the write, and not again.
	EarlyInvalidation = false
	// StuckTail: entries that a snapshot stands for do not count as agreed.
	StuckTail = false
	// NonvoterAck: the acknowledgement of a member without a vote confirms a leader.
	NonvoterAck = false
	// OldQuorum: a leader is confirmed by the smallest majority that the cluster ever had.
	OldQuorum = false
	// KeptID: a node with an emptied folder has the ID that it had.
	KeptID = false
	// OldFolder: a member admits every incarnation of another.
	OldFolder = false
	// BothLives: a node goes on when it learns that a later process has its identity.
	BothLives = false
	// LargePackets: connections between nodes keep large packets where these are lost and small ones pass.
	LargePackets = false
	// KeptDamage: a leader keeps its newest snapshot, which a member needs and which is damaged.
	KeptDamage = false
	// LoneDamage: a node whose newest snapshot is damaged when it starts asks no member for its state.
	LoneDamage = false
	// SameJump: the fences of a state that begins anew grow by the same, whenever that is.
	SameJump = false
	// ReplaceKeeps: a replaced member keeps its vote.
	ReplaceKeeps = false
	// BlindCheck: a member takes its own state for right.
	BlindCheck = false
	// LockFence: the fence of a native lock is taken when its owner gets in line.
	LockFence = false
	// LockShortWait: a wait for a native lock ends after seven eighths of its time.
	LockShortWait = false
	// LockDeadWaiter: a waiter whose client is gone holds up the line.
	LockDeadWaiter = false
	// LockLeak: a waiter whose client is gone is granted the lock.
	LockLeak = false
	// LockSession: a session outlives its node.
	LockSession = false
	// LockSilent: a client that has promised signs of life and sends none keeps its locks as long as its connection
	// stands.
	LockSilent = false
	// LockVanished: the kernel gives a client that holds locks up no sooner than any other.
	LockVanished = false
	// LockSlowEnd: what ends for many at once is worked off one by one, and who waits for some of it waits for all.
	LockSlowEnd = false
	// LockQueueLost: a snapshot has the holds of native locks, and not who waits.
	LockQueueLost = false
	// ForwardedRights: a node that does not lead sends scripts to the leader without what their users may do.
	ForwardedRights = false
)
