package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// The memory of the state is counted, not measured, so that all nodes count alike and refuse the same
// writes. DESIGN.md has the rules and why they hold.
const (
	// scriptBytes is a cached script, and scriptFactor each byte of the source: what TestScriptMemory measures for the
	// worst sources, and a half more.
	scriptBytes  = 1 << 10
	scriptFactor = 64
	// sessionBytes is a session, and rangeBytes each of the session's ranges.
	sessionBytes = 128
	rangeBytes   = 16
)

// usedBytes is what counts against the limit, without the sessions.
func (st *state) usedBytes() int64 {
	scripts := scriptsBytes(st.scripts.bySHA.Len(), st.scripts.loadedBytes+st.scripts.rememberedBytes)
	return st.ItemBytes + scripts + st.Waits.Bytes() + st.Locks.Bytes() + st.history.usedBytes()
}

// scriptsBytes is what so many cached scripts count for.
func scriptsBytes(scripts, sourceBytes int) int64 {
	return int64(scripts)*scriptBytes + int64(sourceBytes)*scriptFactor
}

func (ss sessions) usedBytes() (n int64) {
	for _, s := range ss {
		n += sessionBytes + int64(len(s.node)) + int64(len(s.applied))*rangeBytes
	}
	return n
}

var errOOMExec = protocol.ExecAbortedBy(protocol.ErrOOM).Value()

// limitMemory sets the memory limit of the entry. The sessions count as they are when the entry begins.
func (c *call) limitMemory(limitBytes uint64) {
	c.limited = limitBytes != 0
	c.limitBytes = int64(min(limitBytes, 1<<62)) - c.st.sessions.usedBytes()
}

// Full reports whether the state is over the limit. Commands that may make the state grow are then
// refused.
func (c *call) Full() bool { return c.limited && c.st.usedBytes() > c.limitBytes }

// Shares of the limit of memory.
const (
	// loadedShare is what scripts of SCRIPT LOAD may take though the state is full: clients load the scripts that give
	// locks back.
	loadedShare = 16
	// rememberedShare is what the sources that EVAL leaves may take.
	rememberedShare = 8
)

// refusesLoad reports whether there is no room for another script of SCRIPT LOAD.
func (c *call) refusesLoad(source string) bool {
	if !c.limited {
		return false
	}
	sc, more := &c.st.scripts, scriptsBytes(1, len(source))
	loaded := scriptsBytes(sc.loaded(), sc.loadedBytes)
	return c.st.usedBytes()+more > c.limitBytes && loaded+more > c.limitBytes/loadedShare
}

// remembersMore reports whether the sources that EVAL has left take more than they may.
func (c *call) remembersMore() bool {
	sc := &c.st.scripts
	if sc.byTurn.Len() > maxRemembered || sc.rememberedBytes > maxRememberedBytes {
		return true
	}
	return c.limited && sc.byTurn.Len() > 0 &&
		scriptsBytes(sc.byTurn.Len(), sc.rememberedBytes) > c.limitBytes/rememberedShare
}

// refusesQueued reports whether some request of a transaction would be refused now.
func (c *call) refusesQueued(queued string) bool {
	if !c.Full() {
		return false
	}
	var r protocol.Request
	for queued != "" {
		queued, _ = protocol.NextRequest(queued, &r) // parsed before without error
		if b := c.lookup(wordOf(r.Args)); b != nil && b.grows {
			return true
		}
	}
	return false
}

// accounts are the users whose keys and waiters are counted: those whose requests had a quota. What each has is counted
// by the databases, and by the tables of those that wait.
type accounts struct {
	// users have the numbers from 1 on.
	users   []string
	numbers map[string]int
}

// Account is what a user with a quota has.
type Account struct {
	User                 string
	Keys, Bytes, Waiters int64
}

// accountsInUse are the users that have something.
func (st *state) accountsInUse() (all []Account) {
	for i, user := range st.accounts.users {
		if a := st.usage(i + 1); a != (Account{}) {
			a.User = user
			all = append(all, a)
		}
	}
	return all
}

// usage is what an account counts, without the user.
func (st *state) usage(account int) (a Account) {
	for _, d := range st.Databases {
		u := d.Usage(account)
		a.Keys, a.Bytes = a.Keys+u.Keys, a.Bytes+u.Bytes
	}
	a.Waiters = int64(st.Waits.Count(account) + st.Locks.WaitersOf(account))
	return a
}

// set gives a number to a user, in the place of a former one; without a user the last number is given back.
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

// openingWork is a look at all accounts.
const openingWork = 1 << 18

// openAccount begins a request of a user with a quota. If all accounts are in use the user gets none: see
// [call.exceeds]. Accounts are opened as requests begin and not within: a roll-back brings back items with the numbers
// that they had.
func (c *call) openAccount(q *protocol.Quota) {
	if q.User == "" {
		return
	}
	as := &c.st.accounts
	c.acting, c.Account = acting{quota: *q}, as.numbers[q.User]
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

// closeAccount ends what openAccount began: what follows counts for no account. A request that leaves its user nothing
// opens no account, so a request that did not fit leaves nothing behind.
func (c *call) closeAccount() {
	if c.opened && c.st.usage(c.Account) == (Account{}) {
		c.st.accounts.set(c.Account, c.former)
	}
	c.acting, c.Account = acting{}, 0
}

// refuses reports whether a command may not run since it may make the state grow: then c.refusal is the reply.
func (c *call) refuses(b *binding, words []string) bool {
	if b.grows && c.Full() {
		c.refusal = command.ErrOOM
		return true
	}
	return c.quota.User != "" && (b.grows || b.name == "smove") && c.exceeds(b, words)
}

// exceeds reports whether the user has no room for the keys that a command may create, or no bytes are left: as with
// the limit of memory the last command may go beyond.
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

// creates is how many keys a command creates at most: those that it may write and that are not there.
func (c *call) creates(row *protocol.Command, words []string) (n uint64) {
	if row.Name == "copy" && len(words) > 3 {
		return 1 // perhaps into another database
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

// crowded reports whether the user has no room for another waiter: then c.refusal is the reply.
func (c *call) crowded() bool {
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

// refusalOfLock is the reply for what the lock table refuses the request under way for.
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

// account reads the number of an account.
func (r *snapshotReader) account(st *state, least uint64) int {
	n := r.uint("account")
	if n < least || n > uint64(len(st.accounts.users)) {
		r.fail("account")
		return 0
	}
	return int(n)
}
