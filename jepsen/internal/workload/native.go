package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// NativeDB is the database of native locks only; it is empty at the end.
const NativeDB = "9"

// patience is the time beyond a wait's timeout after which a client gives up on the reply. It is longer than any fault.
const patience = 12 * time.Second

// noticeSlot is the slot of a pipeline under which notices are recorded, since they come at any time.
const noticeSlot = maxPipe - 1

// lockConn is the RESP3 connection of a client of native locks, with the pushes received.
type lockConn struct {
	*wire.Conn
	c    *Client
	told map[string]result // result of a wait, by key and owner
	lost map[string]int64  // fence of the last lost hold, by key and owner
}

func (l *lockConn) close() {
	if l != nil {
		l.Close()
	}
}

func party(key string, owner int64) string { return key + " " + ownerToken(owner) }

// push handles a push message: "lock", event, key, owner, and more.
func (l *lockConn) push(v protocol.Value) {
	if len(v.Elems) < 4 || v.Elems[0].Str != "lock" {
		return
	}
	key, owner := v.Elems[2].Str, v.Elems[3].Str
	var fence int64
	if len(v.Elems) > 4 {
		fence = v.Elems[4].Num
	}
	switch v.Elems[1].Str {
	case "granted":
		l.told[key+" "+owner] = ok(1, fence)
	case "timeout":
		l.told[key+" "+owner] = ok(0)
	case "failed":
		why := v.Elems[min(4, len(v.Elems)-1)].Str
		l.told[key+" "+owner] = result{outcome: history.Info, why: why}
		if protocol.OutcomeOf(why) == protocol.OutcomeNone {
			l.told[key+" "+owner] = failed(why)
		}
	case "lost":
		l.lost[key+" "+owner] = fence
		var n int64
		_, err := fmt.Sscanf(owner, "owner-%d", &n)
		if err != nil || len(v.Elems) < 6 {
			return
		}
		o := history.Op{F: "lost", Key: key, Input: []int64{n, fence, reasons[v.Elems[5].Str]}}
		l.c.invoke(noticeSlot, o).OK()
	}
}

var reasons = map[string]int64{
	"expired": checker.ReasonExpired, "session": checker.ReasonSession, "broken": checker.ReasonBroken,
	"flushed": checker.ReasonFlushed, "unknown": checker.ReasonUnknown,
}

// roam changes the node of a client of native locks at random, or after an error.
func (c *Client) roam() {
	if conn := c.locks[c.node]; c.moved || conn == nil || conn.Broken() || c.chance(hopChance) {
		c.moved = false
		nodes := c.o.Service.Nodes()
		c.node = nodes[c.rng.IntN(len(nodes))]
	}
}

// lockConn returns the client's connection for native locks to its node, dialing if necessary.
func (c *Client) lockConn(ctx context.Context) (*lockConn, error) {
	if l := c.locks[c.node]; l != nil && !l.Broken() {
		return l, nil
	}
	l, err := c.freshLockConn(ctx)
	if err == nil {
		if c.locks == nil {
			c.locks = map[string]*lockConn{}
		}
		c.locks[c.node] = l
	}
	return l, err
}

// freshLockConn returns a new connection.
func (c *Client) freshLockConn(ctx context.Context) (*lockConn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &lockConn{Conn: conn, c: c, told: map[string]result{}, lost: map[string]int64{}}
	conn.OnPush = l.push
	for _, words := range [][]string{{"HELLO", "3"}, {"SELECT", NativeDB}} {
		if r := conn.Do(words...); r.Outcome != history.OK {
			conn.Close()
			return nil, fmt.Errorf("%s: %s", words[0], r.Why)
		}
	}
	return l, nil
}

// ask is a request for a native lock.
type ask struct {
	keys                []string
	owner, ttl          int64
	session             int64 // 0: the hold has a lease of ttl
	mode, limit, permit int64
	wait, delay, call   int64
	strict              int64
	notify              bool
}

func (a *ask) words() []string {
	words := []string{"LOCK.ACQUIRE", a.keys[0], ownerToken(a.owner)}
	if len(a.keys) > 1 {
		words = append([]string{"LOCK.ACQUIREALL", decimal(int64(len(a.keys)))}, append(a.keys, ownerToken(a.owner))...)
	}
	if a.session != 0 {
		words = append(words, "SESSION", decimal(a.session))
	} else {
		words = append(words, "PX", decimal(a.ttl))
	}
	switch a.mode {
	case checker.Shared:
		words = append(words, "SHARED")
	case checker.Counted:
		words = append(words, "LIMIT", decimal(a.limit), "PERMITS", decimal(a.permit))
	}
	if a.wait >= 0 {
		words = append(words, "WAIT", decimal(a.wait))
		if a.notify {
			words = append(words, "NOTIFY")
		}
	}
	if a.delay > 0 {
		words = append(words, "DELAY", decimal(a.delay))
	}
	if a.call > 0 {
		words = append(words, "REENTRANT", "CALL", decimal(a.call))
	}
	return words
}

func (a *ask) op(key string) history.Op {
	return history.Op{F: "acquire", Key: key, Input: []int64{
		a.owner, a.ttl, a.mode, a.limit, a.permit, a.wait, a.delay, a.call, a.strict,
	}}
}

// acquire sends the request and waits for its reply.
func (a *ask) acquire(ctx context.Context, l *lockConn) result {
	delete(l.told, party(a.keys[0], a.owner))
	r := l.DoWithin(time.Duration(max(0, a.wait))*time.Millisecond, a.words()...)
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.IsNull():
		return ok(0)
	case r.Value.Kind == protocol.KindInteger && r.Value.Num > 0:
		return ok(1, r.Value.Num, 0)
	case r.Value.Kind == protocol.KindInteger && a.notify:
		return a.listen(ctx, l)
	}
	return unexpected(r)
}

// listen waits for the push that ends the wait.
func (a *ask) listen(ctx context.Context, l *lockConn) result {
	inLine := l.c.o.Recorder.Now()
	name := party(a.keys[0], a.owner)
	done := func() bool { _, told := l.told[name]; return told }
	until := time.Now().Add(time.Duration(a.wait)*time.Millisecond + patience)
	for ctx.Err() == nil && time.Now().Before(until) && l.Listen(200*time.Millisecond, done) && !done() {
	}
	r, told := l.told[name]
	switch {
	case told && r.outcome == history.OK && r.output[0] == 1:
		return ok(1, r.output[1], inLine)
	case told:
		return r
	case l.Broken():
		return result{outcome: history.Info, why: "connection lost in line"}
	}
	l.Close()
	if ctx.Err() != nil {
		return result{outcome: history.Info, why: "the run ended"}
	}
	return result{outcome: history.Info, why: "timed out in line"}
}

// lockOp performs and records an operation on one or more locks, with one result.
func (c *Client) lockOp(l *lockConn, ops []history.Op, do func() result) result {
	pending := make([]*history.Pending, len(ops))
	for i, o := range ops {
		pending[i] = c.invoke(i, o)
	}
	r := do()
	for _, p := range pending {
		c.complete(p, r)
	}
	if r.outcome != history.OK && strings.HasPrefix(r.why, "CLUSTERDOWN") || l.Broken() {
		c.moved = true
	}
	return r
}

// lockAsk records and performs an acquire on the client's present node.
func (c *Client) lockAsk(ctx context.Context, a *ask) (*lockConn, result) {
	l, err := c.lockConn(ctx)
	if err != nil {
		c.moved = true
		return nil, failed(err.Error())
	}
	var ops []history.Op
	for _, key := range a.keys {
		ops = append(ops, a.op(key))
	}
	return l, c.lockOp(l, ops, func() result { return a.acquire(ctx, l) })
}

// lockWord records and performs another command on one lock; read converts a reply that is not null to outputs.
func (c *Client) lockWord(ctx context.Context, o history.Op, read func(protocol.Value) []int64,
	words ...string,
) result {
	l, err := c.lockConn(ctx)
	if err != nil {
		c.moved = true
		return failed(err.Error())
	}
	return c.lockOp(l, []history.Op{o}, func() result { return onLock(l.Do(words...), read) })
}

// onLock reads the reply of a command on a lock: null if the caller is not the owner.
func onLock(r wire.Reply, read func(protocol.Value) []int64) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.IsNull():
		return ok(0)
	case r.Value.Kind != protocol.KindInteger:
		return unexpected(r)
	}
	return ok(read(r.Value)...)
}

// oneAnd returns the outputs of a successful reply: 1 and the reply's number.
func oneAnd(v protocol.Value) []int64 { return []int64{1, v.Num} }

// leftLimit bounds the time after a run until the last lease, wait, delay and session have ended.
const leftLimit = 40 * time.Second

// finalLeft records what remains of native locks once everything must have ended.
func finalLeft(ctx context.Context, c *Client, name string) {
	until := time.Now().Add(leftLimit)
	for {
		c.roam()
		p := c.invoke(0, history.Op{F: "left", Key: name + ":left"})
		left, err := c.left(ctx)
		none := err == nil
		for _, n := range left {
			none = none && n == 0
		}
		switch {
		case ctx.Err() != nil || time.Now().After(until) && err != nil:
			p.Complete(history.Fail, fmt.Sprint("no node answers: ", err))
			return
		case none || time.Now().After(until):
			p.OK(left...)
			return
		}
		p.Complete(history.Fail, "not yet")
		c.moved = err != nil
		Sleep(ctx, 500*time.Millisecond)
	}
}

// left returns the numbers of lock keys, of rows of LOCK.LIST and SESSION.LIST, and of keys of the database.
func (c *Client) left(ctx context.Context) ([]int64, error) {
	l, err := c.lockConn(ctx)
	if err != nil {
		return nil, err
	}
	var left []int64
	for _, words := range [][]string{
		{"SCAN", "0", "TYPE", "lock", "COUNT", "1000"},
		{"LOCK.LIST"},
		{"SESSION.LIST"},
		{"DBSIZE"},
	} {
		r := l.Do(words...)
		switch {
		case r.Outcome != history.OK:
			return nil, fmt.Errorf("%s: %s", words[0], r.Why)
		case r.Value.Kind == protocol.KindInteger:
			left = append(left, r.Value.Num)
		case len(r.Value.Elems) == 2:
			left = append(left, int64(len(r.Value.Elems[1].Elems)))
		}
	}
	return left, nil
}
