package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// changes formats the changes of locks.
func changes(events []event.Event) (all []string) {
	if len(events) == 0 {
		return nil
	}
	for _, ch := range events[len(events)-1].Changes {
		kind := "native"
		if ch.Stock {
			kind = "stock"
		}
		text := fmt.Sprintf("%s %s %d/%s %s %d by %s/%d at %d held %d waited %d %s %s %s %s", ch.What, kind, ch.DB, ch.Key,
			ch.Owner, ch.Fence, ch.Node, ch.Conn, ch.AtMillis, ch.HeldMillis, ch.WaitedMillis, ch.Reason, ch.Command, ch.Text,
			ch.Note)
		if ch.Shared {
			text += " shared"
		}
		all = append(all, strings.Join(strings.Fields(text), " "))
	}
	return all
}

// from returns a request of a connection of the driver's node.
func (d *driver) from(conn int64, ticket uint64, words ...string) []byte {
	if strings.HasPrefix(words[0], "lock.") {
		head := protocol.Head{Lock: true, Conn: conn, Ticket: ticket, GraceMillis: 50}
		return protocol.AppendRequest(nil, head, words[0], protocoltest.Args(words[1:]))
	}
	return requestFrom(nil, 0, uint64(conn), words...)
}

// takeHash and dropHash are scripts of libraries whose locks are hashes with the owner as a field.
const (
	takeHash = "redis.call('hset',KEYS[1],ARGV[1],1)redis.call('pexpire',KEYS[1],5000)"
	dropHash = "redis.call('hdel',KEYS[1],ARGV[1])"
)

// TestLockChanges: the audit gets each grant, release and loss once, with the connection that acquired the lock, and
// nothing of an undone script.
func TestLockChanges(t *testing.T) {
	d := newDriver(t)
	d.nowMillis, d.wallOffset = 1000, 1_000_000
	told := func(conn int64, ticket uint64, words ...string) []string {
		return changes(d.record(d.from(conn, ticket, words...)).events)
	}
	require.Empty(t, told(7, 0, "lock.acquire", "x", "me", "px", "50"), "nobody audits")
	d.m.Listen(event.InLocks)
	for _, step := range []struct {
		conn   int64
		ticket uint64
		words  string
		want   []string
	}{
		{7, 0, "lock.acquire a me px 5000", []string{"granted native 0/a me 2 by n1/7 at 1001000 held 0 waited 0"}},
		{7, 0, "lock.acquire a me px 5000", nil},
		{8, 0, "lock.acquire a me px 5000", []string{"renewed native 0/a me 2 by n1/8 at 1001000 held 0 waited 0"}},
		{9, 1, "lock.acquire a you px 5000 wait 0", nil},
		{0, 0, "", []string{"lost native 0/x me 1 by n1/7 at 1001050 held 50 waited 0 expired"}},
		{8, 0, "lock.release a me", []string{
			"released native 0/a me 2 by n1/8 at 1001100 held 100 waited 0",
			"granted native 0/a you 3 by n1/9 at 1001100 held 0 waited 100",
		}},
		{8, 0, "lock.break a reason stuck", []string{
			"lost native 0/a you 3 by n1/9 at 1001100 held 0 waited 0 broken lock.break stuck",
		}},
		{7, 0, "set s token nx px 5000", []string{"granted stock 0/s token 0 by n1/7 at 1001100 held 0 waited 0"}},
		{7, 0, "set s other nx px 5000", nil},
		{7, 0, "set s token xx px 5000", nil},
		{0, 0, "", nil},
		{8, 0, "delifeq s token", []string{"released stock 0/s token 0 by n1/7 at 1001200 held 100 waited 0"}},
		{7, 0, "set s token nx px 5000", []string{"granted stock 0/s token 0 by n1/7 at 1001200 held 0 waited 0"}},
		{8, 0, "del s", []string{"lost stock 0/s token 0 by n1/7 at 1001200 held 0 waited 0 broken del"}},
		{7, 0, "set s token nx px 50", []string{"granted stock 0/s token 0 by n1/7 at 1001200 held 0 waited 0"}},
		{0, 0, "", []string{"lost stock 0/s token 0 by n1/7 at 1001250 held 50 waited 0 expired"}},
		{7, 0, "set k v", nil},
		{8, 0, "set s token nx px 5000", []string{"granted stock 0/s token 0 by n1/8 at 1001300 held 0 waited 0"}},
		{7, 0, "flushall", []string{"lost stock 0/s token 0 by n1/8 at 1001300 held 0 waited 0 flushed flushall"}},
		{7, 0, "setnx s token", nil},
		{0, 0, "", nil},
		{8, 0, "pexpire s 5000", []string{"granted stock 0/s token 0 by n1/7 at 1001400 held 100 waited 0"}},
		{8, 0, "persist s", []string{"released stock 0/s token 0 by n1/7 at 1001400 held 100 waited 0"}},
		{8, 0, "pexpire s 5000", []string{"granted stock 0/s token 0 by n1/7 at 1001400 held 100 waited 0"}},
		{8, 0, "getset s other", []string{"lost stock 0/s token 0 by n1/7 at 1001400 held 100 waited 0 broken getset"}},
		{7, 0, "set n 5 nx px 5000", []string{"granted stock 0/n 5 0 by n1/7 at 1001400 held 0 waited 0"}},
		{8, 0, "incr n", []string{"lost stock 0/n 5 0 by n1/7 at 1001400 held 0 waited 0 broken incr"}},
		{7, 0, "set m token nx px 5000", []string{"granted stock 0/m token 0 by n1/7 at 1001400 held 0 waited 0"}},
		{8, 0, "rename m to", []string{
			"lost stock 0/m token 0 by n1/7 at 1001400 held 0 waited 0 broken rename",
			"granted stock 0/to token 0 by n1/7 at 1001400 held 0 waited 0",
		}},
		{8, 0, "lock.break to reason stuck", []string{
			"lost stock 0/to token 0 by n1/7 at 1001400 held 0 waited 0 broken lock.break stuck",
		}},
		{7, 0, "eval " + takeHash + " 1 h a", []string{"granted stock 0/h a 0 by n1/7 at 1001400 held 0 waited 0 shared"}},
		{8, 0, "hset h b 1 mode read a 2", []string{"granted stock 0/h b 0 by n1/8 at 1001400 held 0 waited 0 shared"}},
		{8, 0, "hset h c 1", []string{"granted stock 0/h c 0 by n1/8 at 1001400 held 0 waited 0 shared"}},
		{8, 0, "hdel h a a mode", []string{"released stock 0/h a 0 by n1/7 at 1001400 held 0 waited 0"}},
		{8, 0, "eval " + dropHash + " 1 h b", []string{"released stock 0/h b 0 by n1/7 at 1001400 held 0 waited 0"}},
		{7, 0, "eval " + takeHash + " 1 g a", []string{"granted stock 0/g a 0 by n1/7 at 1001400 held 0 waited 0 shared"}},
		{7, 0, "hset g b 1 c 1", []string{
			"granted stock 0/g b 0 by n1/7 at 1001400 held 0 waited 0 shared",
			"granted stock 0/g c 0 by n1/7 at 1001400 held 0 waited 0 shared",
		}},
		{8, 0, "lock.break g owner b", []string{
			"lost stock 0/g b 0 by n1/7 at 1001400 held 0 waited 0 broken lock.break",
		}},
		{8, 0, "eval return{redis.call('del',KEYS[1])} 1 g c", []string{
			"lost stock 0/g a 0 by n1/7 at 1001400 held 0 waited 0 broken del",
			"released stock 0/g c 0 by n1/7 at 1001400 held 0 waited 0",
		}},
		{7, 0, "eval " + takeHash + " 1 f a", []string{"granted stock 0/f a 0 by n1/7 at 1001400 held 0 waited 0 shared"}},
		{7, 0, "hset f b 1", []string{"granted stock 0/f b 0 by n1/7 at 1001400 held 0 waited 0 shared"}},
		{8, 0, "del f", []string{
			"lost stock 0/f a 0 by n1/7 at 1001400 held 0 waited 0 broken del",
			"lost stock 0/f b 0 by n1/7 at 1001400 held 0 waited 0 broken del",
		}},
		{7, 0, "set p same nx px 5000", []string{"granted stock 0/p same 0 by n1/7 at 1001400 held 0 waited 0"}},
		{0, 0, "", nil},
		{7, 0, "set q same nx px 5000", []string{"granted stock 0/q same 0 by n1/7 at 1001500 held 0 waited 0"}},
		{8, 0, "rename q p", []string{
			"lost stock 0/q same 0 by n1/7 at 1001500 held 0 waited 0 broken rename",
			"released stock 0/p same 0 by n1/7 at 1001500 held 100 waited 0",
			"granted stock 0/p same 0 by n1/7 at 1001500 held 0 waited 0",
		}},
		{7, 0, "lock.acquire d me px 5000", []string{"granted native 0/d me 4 by n1/7 at 1001500 held 0 waited 0"}},
		{0, 0, "", nil},
		{8, 0, "lock.acquireall 2 d e me px 5000", []string{
			"renewed native 0/d me 5 by n1/8 at 1001600 held 100 waited 0",
			"granted native 0/e me 5 by n1/8 at 1001600 held 0 waited 0",
		}},
		{8, 0, "lock.downgrade d me", []string{"renewed native 0/d me 5 by n1/8 at 1001600 held 0 waited 0 shared"}},
		{8, 0, "lock.downgrade d me", nil},
		{8, 0, "swapdb 2 3", nil},
		{8, 0, "lock.releaseall 2 d e me", []string{
			"released native 0/d me 5 by n1/8 at 1001600 held 100 waited 0",
			"released native 0/e me 5 by n1/8 at 1001600 held 0 waited 0",
		}},
		{8, 0, "swapdb 0 1", []string{"swapped stock 0/ 0 by /0 at 1001600 held 0 waited 0"}},
	} {
		if step.words == "" {
			require.Equal(t, step.want, changes(d.advance(100)))
			continue
		}
		require.Equal(t, step.want, told(step.conn, step.ticket, strings.Fields(step.words)...), step.words)
	}
	const crowd = "for i=1,100 do redis.call('hset','h1',i,1)end redis.call('pexpire','h1',5000)"
	require.Len(t, told(7, 0, "eval", crowd, "0"), 100)

	lines := told(7, 0, "eval", "for i=1,1000 do redis.call('rename','h1','h2')redis.call('rename','h2','h1')end", "0")
	require.Len(t, lines, maxLockChanges+1)
	require.Contains(t, lines[maxLockChanges], "omitted")
	require.Empty(t, told(7, 0, "eval", "redis.call('set','s','t','nx','px',5000) while true do end", "0"))
	require.Len(t, told(7, 0, "eval", "redis.call('set','s','t','nx','px',5000)", "0"), 1)
	require.Empty(t, told(8, 0, "eval", "redis.call('del','s') while true do end", "0"))
	require.Equal(t, []string{"granted stock 0/z token 0 by n1/7 at 1001600 held 0 waited 0"},
		told(7, 0, "set", "z", "token", "nx", "px", "5000"), "with nothing of the loss that was undone")
}

// TestWaitsThatEnd: the audit gets each wait that ends without the lock once, for each of its keys, with the instant
// and the reason. A repeated request for the same locks continues its wait.
func TestWaitsThatEnd(t *testing.T) {
	d := newDriver(t)
	d.nowMillis, d.wallOffset = 1000, 1_000_000
	d.m.Listen(event.InLocks)
	d.native(1, 0, "session.open", "px", "600000")
	d.native(2, 0, "session.open", "px", "1000", "connection")
	for ticket, step := range []struct {
		words string // of connection 2, under the ticket; empty: time passes
		want  []string
	}{
		{"lock.acquire a me session 1 note job", []string{"granted native 0/a me 1 by n1/2 at 1001000 held 0 waited 0 job"}},
		{"lock.acquire b you px 9000", []string{"granted native 0/b you 2 by n1/2 at 1001000 held 0 waited 0"}},
		{"lock.acquire a you px 9 wait 30 note slow", nil},
		{"", []string{"wait-ended native 0/a you 0 by n1/2 at 1001030 held 0 waited 30 timeout slow"}},
		{"lock.acquire a you px 9 wait 0 note over", nil},
		{"lock.cancel a you", []string{"wait-ended native 0/a you 0 by n1/2 at 1001100 held 0 waited 0 cancelled over"}},
		{"lock.acquire a you px 9 wait 0", nil},
		{"unblock error 6", []string{"wait-ended native 0/a you 0 by n1/2 at 1001100 held 0 waited 0 unblocked"}},
		{"lock.acquire a you px 9 wait 0", nil},
		{"", nil},
		{"unblock gone 8", []string{"wait-ended native 0/a you 0 by n1/2 at 1001200 held 0 waited 100 gone"}},
		{"lock.acquire a you px 9 wait 0", nil},
		{"lock.acquire a you px 9 wait 0", nil},
		{"lock.acquire a you px 9 shared wait 0", []string{
			"wait-ended native 0/a you 0 by n1/2 at 1001200 held 0 waited 0 replaced",
		}},
		{"unblock gone 13", []string{"wait-ended native 0/a you 0 by n1/2 at 1001200 held 0 waited 0 gone"}},
		{"lock.acquireall 2 a b you px 9 wait 0 note two", nil},
		{"", nil},
		{"lock.downgrade b you", []string{
			"wait-ended native 0/a you 0 by n1/2 at 1001300 held 0 waited 100 refused two",
			"wait-ended native 0/b you 0 by n1/2 at 1001300 held 0 waited 100 refused two",
			"renewed native 0/b you 2 by n1/2 at 1001300 held 0 waited 0 shared",
		}},
		{"lock.acquire a you session 2 wait 0", nil},
		{"end-connections 2", []string{"wait-ended native 0/a you 0 by n1/2 at 1001300 held 0 waited 0 session"}},
		{"lock.acquire a you px 9 wait 10 note first", nil},
		{"lock.acquire a you px 9 wait 0 note second", nil},
		{"", nil},
		{"lock.release a me", []string{
			"released native 0/a me 1 by n1/2 at 1001400 held 400 waited 0 job",
			"granted native 0/a you 3 by n1/2 at 1001400 held 0 waited 100 second",
		}},
		{"lock.acquire a you px 50 note third", nil},
		{"", []string{"lost native 0/a you 3 by n1/2 at 1001450 held 50 waited 0 expired third"}},
	} {
		if step.words == "" {
			require.Equal(t, step.want, changes(d.advance(100)), "step %d", ticket)
			continue
		}
		told := d.record(d.from(2, uint64(ticket), strings.Fields(step.words)...))
		require.Equal(t, step.want, changes(told.events), step.words)
	}
}
