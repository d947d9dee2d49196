package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// lockOps has the functions of the commands of native locks and sessions.
var lockOps = map[string]op{
	"lock.acquire":      acquireOp,
	"lock.acquireall":   acquireallOp,
	"lock.break":        breakOp,
	"lock.cancel":       cancelOp,
	"lock.check":        checkOp,
	"lock.downgrade":    downgradeOp,
	"lock.history":      lockHistoryOp,
	"lock.info":         lockInfoOp,
	"lock.list":         lockListOp,
	"lock.release":      releaseOp,
	"lock.releaseall":   releaseallOp,
	"lock.renew":        renewOp,
	"session.attach":    sessionAttachOp,
	"session.close":     sessionCloseOp,
	"session.info":      sessionInfoOp,
	"session.keepalive": sessionKeepaliveOp,
	"session.list":      sessionListOp,
	"session.open":      sessionOpenOp,
}

// anyNotLock reports whether one of the keys has a value other than a native lock. The caller then replies with
// command.ErrWrongType.
func (c *call) anyNotLock(keys ...string) bool {
	for _, key := range keys {
		if it := c.FindIn(c.DB, key); it != nil && !it.IsLock() {
			return true
		}
	}
	return false
}

func acquireOp(c *call) protocol.Value {
	return c.acquire(&lockOptions{request: locks.Request{DB: c.DB}, command: c.Args[0]})
}

func acquireallOp(c *call) protocol.Value {
	return c.acquire(&lockOptions{
		request: locks.Request{DB: c.DB}, command: c.Args[0], many: true,
	})
}

// acquire parses a request for locks, and passes it to the lock table.
func (c *call) acquire(o *lockOptions) protocol.Value {
	r := &o.request
	if problem := o.read(c.Args); problem.IsError() {
		return problem
	}
	if c.anyNotLock(r.Keys...) {
		return command.ErrWrongType
	}
	if !c.paysForKeys(len(r.Keys)) || !c.fitsChanges(len(r.Keys)) {
		return command.ErrOverWork
	}
	r.Session = c.usableSession(r.Session)
	r.Client, r.Ticket, r.GraceMillis = c.from.client, c.from.ticket, c.from.graceMillis
	r.Account, r.OverQuota = int16(c.Account), r.Waits && c.isOverWaiterQuota()
	grants := c.locked.Grants
	answer, err := c.changeLocks(len(r.Keys)).Acquire(r)
	c.publishLockEvents()
	switch {
	case err != nil:
		return c.refusalOfLock(err)
	case answer.Fence != 0:
		if c.locked.Grants == grants { // the request has renewed a hold
			for _, key := range r.Keys {
				c.touchLock(lockKey{c.DB, key})
			}
		}
		return protocol.Integer(int64(answer.Fence))
	case !answer.Waiting:
		c.EmitNative(locks.Refused, r.Keys[0], r.Owner)
		return protocol.Null
	case answer.Kept:
		for _, key := range r.Keys {
			c.touchLock(lockKey{c.DB, key})
		}
	}
	if r.Notify {
		return command.Zero
	}
	return protocol.Parked
}

// fitsChanges reports whether the budget suffices for ownChanges(keys).
func (c *call) fitsChanges(keys int) bool { return c.Fits(c.ownWork(ownChanges(keys))) }

// ownerOf parses the first words of most lock commands, "<command> <key> <owner>", and charges the work for the key.
func (c *call) ownerOf() (key, owner string, problem protocol.Value) {
	key, owner = c.Args[1], c.Args[2]
	switch {
	case len(owner) > locks.MaxText:
		return key, owner, protocol.ErrOwnerTooLong.Value()
	case c.anyNotLock(key):
		return key, owner, command.ErrWrongType
	case !c.paysForKeys(1), !c.fitsChanges(1):
		return key, owner, command.ErrOverWork
	}
	return key, owner, problem
}

// fenceOrNull returns a fence as a reply, or null if the fence is 0: the owner does not hold the lock.
func fenceOrNull(fence uint64) protocol.Value {
	if fence == 0 {
		return protocol.Null
	}
	return protocol.Integer(int64(fence))
}

func renewOp(c *call) protocol.Value {
	unit := leaseUnit(c.Args[3])
	if unit == 0 {
		return command.ErrSyntax
	}
	millis, problem := parseLease(c.Args[4], unit, c.Args[0])
	if problem.IsError() {
		return problem
	}
	key, owner, problem := c.ownerOf()
	if problem.IsError() {
		return problem
	}
	fence := c.changeLocks(1).Renew(c.DB, key, owner, millis)
	c.publishLockEvents()
	if fence != 0 {
		c.touchLock(lockKey{c.DB, key})
	}
	return fenceOrNull(fence)
}

func releaseOp(c *call) protocol.Value {
	all := false
	for _, word := range c.Args[3:] {
		if !command.IsWord(word, "ALL") {
			return command.ErrSyntax
		}
		all = true
	}
	key, owner, problem := c.ownerOf()
	if problem.IsError() {
		return problem
	}
	left, ok := c.changeLocks(1).Release(c.DB, key, owner, all)
	c.publishLockEvents()
	if !ok {
		c.EmitNative(locks.Mismatched, key, owner)
		return protocol.Null
	}
	if left > 0 {
		c.touchLock(lockKey{c.DB, key})
	}
	return protocol.Integer(left)
}

func releaseallOp(c *call) protocol.Value {
	keys, rest, problem := parseKeys(c.Args[1:], math.MaxInt64)
	switch {
	case problem.IsError():
		return problem
	case len(rest) != 1:
		return command.ErrSyntax
	case len(rest[0]) > locks.MaxText:
		return protocol.ErrOwnerTooLong.Value()
	}
	if c.anyNotLock(keys...) {
		return command.ErrWrongType
	}
	if !c.paysForKeys(len(keys)) || !c.fitsChanges(len(keys)) {
		return command.ErrOverWork
	}
	n := c.changeLocks(len(keys)).ReleaseAll(c.DB, keys, rest[0])
	c.publishLockEvents()
	return protocol.Integer(int64(n))
}

func cancelOp(c *call) protocol.Value {
	key, owner, problem := c.ownerOf()
	if problem.IsError() {
		return problem
	}
	left := c.changeLocks(1).Cancel(c.DB, key, owner)
	c.publishLockEvents()
	return command.Boolean(left)
}

func checkOp(c *call) protocol.Value {
	key, owner, problem := c.ownerOf()
	if problem.IsError() {
		return problem
	}
	return fenceOrNull(c.st.Locks.FenceOf(c.DB, key, owner, c.NowMillis))
}

func downgradeOp(c *call) protocol.Value {
	key, owner, problem := c.ownerOf()
	if problem.IsError() {
		return problem
	}
	fence, err := c.changeLocks(1).Downgrade(c.DB, key, owner)
	c.publishLockEvents()
	if err != nil {
		return refusalOf(err)
	}
	if fence != 0 {
		c.touchLock(lockKey{c.DB, key})
	}
	return fenceOrNull(fence)
}

func breakOp(c *call) protocol.Value {
	b := locks.Break{DB: c.DB, Key: c.Args[1], Reason: locks.Broken}
	text, problem := c.parseBreak(&b, c.Args[2:])
	if problem.IsError() {
		return problem
	}
	if c.anyNotLock(b.Key) {
		return c.breakStock(&b, text)
	}
	if !c.Fits(breakWork(c.st.Locks.Holders(c.DB, b.Key))) || !c.fitsChanges(1) {
		return command.ErrOverWork
	}
	n := c.breakHolds(&b, text)
	if n == 0 && b.OverridesDelay {
		c.touchLock(lockKey{c.DB, b.Key})
	}
	if n > 0 {
		c.locked.Breaks++
		c.forced(b.Key, 1, event.Forced{Text: text, Holds: n})
	}
	return protocol.Integer(int64(n))
}

// parseBreak parses the options of LOCK.BREAK. It returns the text of REASON, for the holders, for logs and for the
// history.
func (c *call) parseBreak(b *locks.Break, words []string) (reason string, problem protocol.Value) {
	problem = parseLockOptions(words, noFlag, func(word, value string) (known bool, problem protocol.Value) {
		switch {
		case command.IsWord(word, "OWNER"):
			if b.ByOwner, b.Owner = true, value; len(value) > locks.MaxText {
				problem = protocol.ErrOwnerTooLong.Value()
			}
		case command.IsWord(word, "FENCE"):
			var n int64
			n, problem = parseNumber(value, 1, math.MaxInt64, command.ErrNotInteger, errFence)
			b.Fence = uint64(n)
		case command.IsWord(word, "DELAY"):
			b.OverridesDelay = true
			b.DelayMillis, problem = parseDelay(value)
		case command.IsWord(word, "REASON"):
			reason, problem = parseText("REASON", value)
		default:
			return false, problem
		}
		return true, problem
	})
	return reason, problem
}

// breakWork returns the most work that breakHolds takes for a lock with this number of holders.
func breakWork(holders int) int64 { return lockWork + int64(holders)*locks.ChangeUnits*grantWork }

// breakHolds ends holds by force, and returns their number. reason is the text of REASON.
//
// Requires: the budget suffices for breakWork.
func (c *call) breakHolds(b *locks.Break, reason string) (n int) {
	c.Spend(lockWork)
	t := c.changeLocks(1)
	b.CauseID = c.recordCause(nativeLocks, reason)
	n = t.Break(b)
	logged := len(c.broken)
	c.breaking = true
	c.publishLockEvents()
	c.breaking = false
	switch {
	case n > 0:
		c.losses(nativeLocks).trimCauses()
	default:
		c.broken = c.broken[:logged]
		c.losses(nativeLocks).dropCause()
	}
	return n
}
