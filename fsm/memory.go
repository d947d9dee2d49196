package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// The memory of the state is counted, not measured, so that all nodes count alike and refuse the same writes. DESIGN.md
// has the rules.
const (
	// scriptBytes is the memory of a cached script, and scriptFactor that of each byte of its source. They are one and a
	// half times the memory of the worst sources of TestScriptMemory.
	scriptBytes  = 1 << 10
	scriptFactor = 64
	// sessionBytes is the memory of a session, and rangeBytes that of each of its ranges.
	sessionBytes = 128
	rangeBytes   = 16
)

// usedBytes returns the memory that counts against the limit, without the sessions.
func (st *state) usedBytes() int64 {
	scripts := scriptsBytes(st.scripts.bySHA.Len(), st.scripts.loadedBytes+st.scripts.rememberedBytes)
	return st.ItemBytes + scripts + st.Waits.Bytes() + st.Locks.Bytes() + st.history.usedBytes()
}

// scriptsBytes returns the estimated memory of cached scripts.
func scriptsBytes(scripts, sourceBytes int) int64 {
	return int64(scripts)*scriptBytes + int64(sourceBytes)*scriptFactor
}

func (ss sessions) usedBytes() (n int64) {
	for _, s := range ss {
		n += sessionBytes + int64(len(s.node)) + int64(len(s.applied))*rangeBytes
	}
	return n
}

// limitMemory sets the memory limit of the entry. The sessions count as they are at the beginning of the entry.
func (c *call) limitMemory(limits *protocol.EntryLimits) {
	c.diskFull, c.limited = limits.DiskFull, limits.MemoryBytes != 0
	c.limitBytes = int64(min(limits.MemoryBytes, 1<<62)) - c.st.sessions.usedBytes()
}

// Full returns the error of commands that may make the state grow, if the state exceeds the limit or the disks are
// nearly full, and else nil.
func (c *call) Full() *protocol.Error {
	switch {
	case c.diskFull:
		return protocol.ErrDiskFull
	case c.limited && c.st.usedBytes() > c.limitBytes:
		return protocol.ErrOOM
	}
	return nil
}

// The shares of the memory limit.
const (
	// The scripts of SCRIPT LOAD may use 1/loadedShare of the limit even if the state is full, since clients load the
	// scripts that release locks.
	loadedShare = 16
	// The sources of EVAL may use 1/rememberedShare of the limit.
	rememberedShare = 8
)

// refusesLoad reports whether the memory limit refuses the SCRIPT LOAD of a source.
func (c *call) refusesLoad(source string) bool {
	if !c.limited {
		return false
	}
	sc, more := &c.st.scripts, scriptsBytes(1, len(source))
	loaded := scriptsBytes(sc.loaded(), sc.loadedBytes)
	return c.st.usedBytes()+more > c.limitBytes && loaded+more > c.limitBytes/loadedShare
}

// isOverEvalShare reports whether the sources of EVAL exceed their share.
func (c *call) isOverEvalShare() bool {
	sc := &c.st.scripts
	if sc.byTurn.Len() > maxRemembered || sc.rememberedBytes > maxRememberedBytes {
		return true
	}
	return c.limited && sc.byTurn.Len() > 0 &&
		scriptsBytes(sc.byTurn.Len(), sc.rememberedBytes) > c.limitBytes/rememberedShare
}

// refusesQueued returns why a request of a transaction would be refused now, or nil.
func (c *call) refusesQueued(queued string) *protocol.Error {
	cause := c.Full()
	if cause == nil {
		return nil
	}
	var r protocol.Request
	for queued != "" {
		queued, _ = protocol.NextRequest(queued, &r) // parsed before without error
		if b := c.lookup(wordOf(r.Args)); b != nil && b.grows {
			return cause
		}
	}
	return nil
}

// accounts has the users whose requests had a quota, and the number of the account of each user. The databases and the
// tables of waiters and sessions count the usage of each account.
type accounts struct {
	users   []string // by number; the first number is 1
	numbers map[string]int
}

// Account has the usage of a user with a quota. Sessions of locks count as keys.
type Account struct {
	User                 string
	Keys, Bytes, Waiters int64
}

// accountsInUse returns the users that have keys or waiters.
func (st *state) accountsInUse() (all []Account) {
	for i, user := range st.accounts.users {
		if a := st.usage(i + 1); a != (Account{}) {
			a.User = user
			all = append(all, a)
		}
	}
	return all
}

// usage returns the usage of an account, without the user.
func (st *state) usage(account int) (a Account) {
	for _, d := range st.Databases {
		u := d.Usage(account)
		a.Keys, a.Bytes = a.Keys+u.Keys, a.Bytes+u.Bytes
	}
	sessions, bytes := st.Locks.SessionsOfAccount(account)
	a.Keys, a.Bytes = a.Keys+sessions, a.Bytes+bytes
	a.Waiters = int64(st.Waits.Count(account) + st.Locks.WaitersOf(account))
	return a
}

// set assigns a number to a user. Without a user it frees the last number.
func (as *accounts) set(number int, user string) {
	if as.numbers == nil {
		as.numbers = make(map[string]int)
	}
	if number > len(as.users) {
		as.users = append(as.users, "")
	}
	delete(as.numbers, as.users[number-1])
	if user == "" {
		as.users = as.users[:number-1]
		return
	}
	as.users[number-1], as.numbers[user] = user, number
}

// openingWork is the work of a search in all accounts.
const openingWork = 1 << 18

// openAccount sets c.Account to the account of a user with a quota, and opens one if the user has none. If all accounts
// are in use, c.Account is 0: see [call.exceeds]. It runs at the beginning of a request, since a roll-back restores
// items with the accounts that they had.
func (c *call) openAccount(q *protocol.Quota) {
	if q.User == "" {
		return
	}
	as := &c.st.accounts
	c.accounting, c.Account = accounting{quota: *q}, as.numbers[q.User]
	switch {
	case c.Account != 0:
		return
	case len(as.users) < keyspace.MaxAccount:
		c.Account = len(as.users) + 1
	default:
		c.writeBudget.left -= openingWork
		n := slices.IndexFunc(as.users, func(user string) bool { return c.st.usage(as.numbers[user]) == (Account{}) })
		if n < 0 {
			return
		}
		c.Account, c.former = n+1, as.users[n]
	}
	c.opened = true
	as.set(c.Account, strings.Clone(q.User))
}

// closeAccount ends the use of the account at the end of a request. If the request has opened the account and left it
// empty, closeAccount closes it again, so a request that did not fit changes nothing.
func (c *call) closeAccount() {
	if c.opened && c.st.usage(c.Account) == (Account{}) {
		c.st.accounts.set(c.Account, c.former)
	}
	c.accounting, c.Account = accounting{}, 0
}

// refuses reports whether a command is refused since it may make the state grow. c.refusal is the reply.
func (c *call) refuses(b *binding, words []string) bool {
	if b.grows {
		if cause := c.Full(); cause != nil {
			c.refusal = cause.Value()
			return true
		}
	}
	return c.quota.User != "" && (b.grows || b.name == "smove") && c.exceeds(b, words)
}

// exceeds reports whether the keys that a command may create would exceed the user's quota, or whether the quota of
// bytes is used up. c.refusal is the reply. As with the memory limit, the last command may exceed the quota of bytes.
func (c *call) exceeds(b *binding, words []string) bool {
	q := &c.quota
	if c.Account == 0 {
		c.refusal = protocol.ErrQuotaUsers.Value()
		return true
	}
	if q.Keys == 0 && q.Bytes == 0 || b.row == nil {
		return false
	}
	has := c.st.usage(c.Account)
	switch {
	case q.Bytes != 0 && uint64(has.Bytes) >= q.Bytes:
		c.refusal = protocol.QuotaExceeded(q.User, "bytes", q.Bytes).Value()
		return true
	case q.Keys != 0 && uint64(has.Keys)+uint64(len(words)) > q.Keys && uint64(has.Keys)+c.creates(b.row, words) > q.Keys:
		c.refusal = protocol.QuotaExceeded(q.User, "keys", q.Keys).Value()
		return true
	}
	return false
}

// creates returns an upper bound of the number of keys that a command creates: the missing keys that it may write.
func (c *call) creates(row *protocol.Command, words []string) (n uint64) {
	switch {
	case row.Name == "copy" && len(words) > 3:
		return 1 // the target may be in another database
	case row.Name == "session.open":
		return 1 // a session counts as a key
	}
	var room [8]protocol.KeyUse
	uses := protocol.AppendKeyUses(row, room[:0], words)
	c.Spend(int64(len(uses)) * command.KeyWork)
	for _, use := range uses {
		if use.Flags&(protocol.KeyInsert|protocol.KeyUpdate) != 0 && c.FindIn(c.DB, words[use.At]) == nil {
			n++
		}
	}
	return n
}

// isOverWaiterQuota reports whether another waiter would exceed the user's quota. c.refusal is the reply.
func (c *call) isOverWaiterQuota() bool {
	q := &c.quota
	switch {
	case q.User == "":
		return false
	case c.Account == 0:
		c.refusal = protocol.ErrQuotaUsers.Value()
		return true
	case q.Waiters == 0 || uint64(c.st.Waits.Count(c.Account)+c.st.Locks.WaitersOf(c.Account)) < q.Waiters:
		return false
	}
	c.refusal = protocol.QuotaExceeded(q.User, "waiters", q.Waiters).Value()
	return true
}

// refusalOfLock returns the reply to the present request if the lock table refuses it.
func (c *call) refusalOfLock(err error) protocol.Value {
	if err == locks.ErrOverQuota {
		return c.refusal
	}
	return refusalOf(err)
}

func (w *snapshotWriter) accounts(users []string) {
	w.uint(uint64(len(users)))
	for _, user := range users {
		w.string(user)
	}
}

func (r *snapshotReader) accounts(st *state) {
	as := &st.accounts
	for n := r.uint("accounts"); n > 0 && r.err == nil; n-- {
		user := r.string("user of an account")
		if _, twice := as.numbers[user]; twice || user == "" || len(user) > protocol.MaxUser ||
			len(as.users) == keyspace.MaxAccount {
			r.fail("accounts")
			return
		}
		as.set(len(as.users)+1, user)
	}
}

// account reads the number of an account, which must be at least minNumber.
func (r *snapshotReader) account(st *state, minNumber uint64) int {
	n := r.uint("account")
	if n < minNumber || n > uint64(len(st.accounts.users)) {
		r.fail("account")
		return 0
	}
	return int(n)
}
