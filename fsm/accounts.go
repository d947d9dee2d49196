package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// versionQuotas is the first version of the entry whose requests may have a quota.
const versionQuotas = 6

// versionOfAccounts is the first version of the snapshot with accounts.
const versionOfAccounts = 5

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
	a.Waiters = int64(st.Waits.Count(account) + st.Locks.Count(account))
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
	if q.User == "" || c.EntryVersion < versionQuotas {
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

// closeAccount ends what openAccount began: what comes is done for nobody. A request that leaves its user nothing opens
// no account, so a request that did not fit leaves nothing behind.
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
		if use.Flags&(protocol.KeyInsert|protocol.KeyUpdate) != 0 && c.FindStored(c.DB, words[use.At]) == nil {
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
	case q.Waiters == 0 || uint64(c.st.Waits.Count(c.Account)+c.st.Locks.Count(c.Account)) < q.Waiters:
		return false
	}
	c.refusal = protocol.QuotaExceeded(q.User, "waiters", q.Waiters).Value()
	return true
}

// refusalOfLock is the reply for what the lock table refuses the request under way for.
func (c *call) refusalOfLock(err error) protocol.Value {
	if err == locks.ErrCrowded {
		return c.refusal
	}
	return refusalOf(err)
}

func (w *snapshotWriter) accounts(users []string) {
	if w.stream < versionOfAccounts {
		return
	}
	w.uint(uint64(len(users)))
	for _, user := range users {
		w.string(user)
	}
}

func (r *snapshotReader) accounts(st *state) {
	as := &st.accounts
	for n := r.uint("accounts"); n > 0 && r.err == nil; n-- {
		user := r.string("user of an account")
		if _, twice := as.numbers[user]; twice || user == "" || len(user) > protocol.MaxQuotaUser ||
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
