//go:build mutants

package mutant

import "os"

// The switches of off.go; the variable names one.
var (
	StaleRead          = chosen("stale_read")
	EarlyAck           = chosen("early_ack")
	WallLease          = chosen("wall_lease")
	NoDedup            = chosen("no_dedup")
	LostWakeup         = chosen("lost_wakeup")
	ServedTwice        = chosen("served_twice")
	MessageOrder       = chosen("message_order")
	MissedInvalidation = chosen("missed_invalidation")
	EarlyInvalidation  = chosen("early_invalidation")
	StuckTail          = chosen("stuck_tail")
	NonvoterAck        = chosen("nonvoter_ack")
	OldQuorum          = chosen("old_quorum")
	KeptID             = chosen("kept_id")
	OldFolder          = chosen("old_folder")
	BothLives          = chosen("both_lives")
	LargePackets       = chosen("large_packets")
	KeptDamage         = chosen("kept_damage")
	LoneDamage         = chosen("lone_damage")
	SameJump           = chosen("same_jump")
	ReplaceKeeps       = chosen("replace_keeps")
	BlindCheck         = chosen("blind_check")
	LockFence          = chosen("lock_fence")
	LockShortWait      = chosen("lock_short_wait")
	LockDeadWaiter     = chosen("lock_dead_waiter")
	LockLeak           = chosen("lock_leak")
	LockSession        = chosen("lock_session")
	LockSilent         = chosen("lock_silent")
	LockVanished       = chosen("lock_vanished")
	LockSlowEnd        = chosen("lock_slow_end")
	LockQueueLost      = chosen("lock_queue_lost")
	ForwardedRights    = chosen("forwarded_rights")
)

// known is whether a switch has the name that was chosen.
var known bool

func chosen(name string) bool {
	is := os.Getenv("HOLDFAST_MUTANT") == name
	known = known || is
	return is
}

func init() {
	if name := os.Getenv("HOLDFAST_MUTANT"); name != "" && !known {
		panic("HOLDFAST_MUTANT=" + name + ": there is no such mutant")
	}
}
