package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// The ways to end many holds at once, as the size of the step.
const (
	manyClosed  = iota // SESSION.CLOSE
	manyHungUp         // the session's connection ends
	manyLeases         // all leases expire at the same instant
	manyDeleted        // DEL of a lock with that many holders
	manyFlushed        // FLUSHDB
	manyWays
)

const (
	// manyHolds is the maximum of a session; manyHolders is just below the maximum of a lock.
	manyHolds, manyHolders = 10_000, 4_000
	// manyAtOnce is the number of requests in one pipeline of a holder.
	manyAtOnce = 500
	// manyDatabase is a database that no workload uses.
	manyDatabase = "7"
	// manyLease is longer than a client needs to acquire all holds.
	manyLease = 6 * second
	// manyLimit bounds the delay until the next client is granted a lock, and the writes of other clients meanwhile. A
	// quiet machine needs a tenth of a second; here all nodes and clients share one.
	manyLimit = 5 * second
)

var manyEnd = [manyWays]string{
	"their session is closed", "their session's connection ends", "their leases end",
	"DEL of their lock", "FLUSHDB",
}

// many ends many holds at once. A few clients wait for some of the locks; others only write.
type many struct {
	n       *Nemesis
	way     int64
	conn    *wire.Conn
	session string
	taken   int
	// notBefore is when the first hold may end, and over when all have ended.
	notBefore, over time.Time

	granted []time.Time   // by waiter; zero: not granted
	longest time.Duration // the longest write of other clients
}

// endMany ends many holds at once. The waiters of these locks must be granted soon, and no other client may wait.
func (n *Nemesis) endMany(ctx context.Context, s step) (effect, error) {
	m := &many{n: n, way: s.Size}
	e := effect{detail: manyEnd[s.Size], details: m.String, mend: m.clean}
	members := n.Target.Members()
	at := s.Order[0] % len(members)
	if err := m.take(ctx, members[at], at%n.Target.Sides()); err != nil {
		return e, err
	}
	defer m.conn.Close()
	third := []int{0, m.taken / 2, m.taken - 1}
	m.granted = make([]time.Time, len(third))
	var waiters, others sync.WaitGroup
	for i, which := range third {
		waiters.Go(func() { m.await(ctx, i, members[(at+i)%len(members)], m.key(which)) })
	}
	workload.Sleep(ctx, second/2)
	limited, stop := context.WithCancel(ctx)
	waits := make([]time.Duration, len(members))
	for i, member := range members {
		others.Go(func() { waits[i] = m.bystander(limited, member, i%n.Target.Sides()) })
	}
	err := m.end(ctx)
	waiters.Wait()
	workload.Sleep(ctx, second/2)
	stop()
	others.Wait()
	m.longest = slices.Max(waits)
	if err == nil && ctx.Err() == nil {
		m.judge()
	}
	return e, err
}

func (m *many) key(i int) string {
	if m.way == manyDeleted {
		return "jepsen-many"
	}
	return "jepsen-many:" + strconv.Itoa(i)
}

// dial connects to a member and selects manyDatabase.
func (m *many) dial(ctx context.Context, member string, side int, timeout time.Duration) (*wire.Conn, error) {
	d, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	nc, err := m.n.Target.Dial(d, side, member)
	if err != nil {
		return nil, err
	}
	conn := wire.New(nc, timeout)
	if r := conn.Do("SELECT", manyDatabase); r.Outcome != history.OK {
		conn.Close()
		return nil, errors.New("SELECT: " + r.Why)
	}
	return conn, nil
}

// take acquires all holds.
func (m *many) take(ctx context.Context, member string, side int) (err error) {
	if m.conn, err = m.dial(ctx, member, side, 4*manyLimit); err != nil {
		return err
	}
	if m.way == manyClosed || m.way == manyHungUp {
		words := []string{"SESSION.OPEN", "PX", millis(holderWait)}
		if m.way == manyHungUp {
			words = append(words, "CONNECTION")
		}
		r := m.conn.Do(words...)
		if r.Outcome != history.OK {
			return errors.New("SESSION.OPEN: " + r.Why)
		}
		m.session = strconv.FormatInt(r.Value.Num, 10)
	}
	m.notBefore = time.Now().Add(manyLease)
	most := manyHolds
	if m.way == manyDeleted {
		most = manyHolders
	}
	for m.taken < most && ctx.Err() == nil {
		left := time.Until(m.notBefore)
		if m.way == manyLeases && left < second {
			break // on a busy machine fewer holds are enough
		}
		var requests [][]string
		for i := range manyAtOnce {
			requests = append(requests, m.request(m.taken+i, left))
		}
		for _, r := range m.conn.Pipeline(requests) {
			if !isGrant(r) {
				return errors.New("LOCK.ACQUIRE: " + r.Why)
			}
		}
		m.taken += manyAtOnce
	}
	if m.taken == 0 {
		return errors.New("no time to take anything")
	}
	return ctx.Err()
}

// request is the command for a hold. All leases expire at the same instant.
func (m *many) request(i int, left time.Duration) []string {
	words := []string{"LOCK.ACQUIRE", m.key(i), "holder"}
	switch m.way {
	case manyClosed, manyHungUp:
		return append(words, "SESSION", m.session)
	case manyLeases:
		return append(words, "PX", millis(left+time.Millisecond))
	case manyDeleted:
		words[2] += strconv.Itoa(i)
		return append(words, "PX", millis(holderWait), "SHARED")
	}
	return append(words, "PX", millis(holderWait))
}

// end ends all holds.
func (m *many) end(ctx context.Context) error {
	if m.way == manyLeases {
		m.over = m.notBefore
		return nil
	}
	m.notBefore = time.Now()
	var r wire.Reply
	switch m.way {
	case manyClosed:
		r = m.conn.Do("SESSION.CLOSE", m.session)
	case manyHungUp:
		m.conn.Close()
	case manyDeleted:
		r = m.conn.Do("DEL", m.key(0))
	case manyFlushed:
		r = m.conn.Do("FLUSHDB")
	}
	m.over = time.Now()
	if r.Outcome != history.OK && ctx.Err() == nil && m.way != manyHungUp {
		return errors.New(manyEnd[m.way] + ": " + r.Why)
	}
	return nil
}

// await waits for a lock. It retries while a member is still starting after the previous fault.
func (m *many) await(ctx context.Context, i int, member, key string) {
	conn, err := m.dial(ctx, member, i%m.n.Target.Sides(), holderSlack)
	if err != nil {
		return
	}
	defer conn.Close()
	owner := "next" + strconv.Itoa(i)
	_ = m.n.until(ctx, holderWait, "granted", func() bool {
		r := conn.DoWithin(holderWait, "LOCK.ACQUIRE", key, owner, "PX", millis(holderWait), "WAIT", millis(holderWait))
		granted := isGrant(r)
		if granted {
			m.granted[i] = time.Now()
			conn.Do("LOCK.RELEASE", key, owner)
		}
		return granted || r.Outcome == history.Info
	})
}

// bystander writes through a member and returns the duration of the longest write.
func (m *many) bystander(ctx context.Context, member string, side int) (longest time.Duration) {
	conn, err := m.dial(ctx, member, side, 4*manyLimit)
	if err != nil {
		return 0
	}
	defer conn.Close()
	for ctx.Err() == nil {
		began := time.Now()
		conn.Do("SET", "jepsen-bystander:"+member, "v")
		longest = max(longest, time.Since(began))
		workload.Sleep(ctx, 5*time.Millisecond)
	}
	return longest.Round(time.Millisecond)
}

// judge reports locks that were granted before a hold had to end, or too late, and slow writes of other clients.
func (m *many) judge() {
	for i, at := range m.granted {
		switch {
		case at.IsZero():
			m.n.find("holder-many: of %d holds that ended (%s), the lock of number %d was not granted again within %s", m.taken,
				manyEnd[m.way], i, holderWait)
		case at.Before(m.notBefore):
			m.n.find("holder-many: two holders: the next was granted a lock %s before its holder had lost it (%s)",
				m.notBefore.Sub(at), manyEnd[m.way])
		case at.Sub(m.over) > manyLimit:
			m.n.find("holder-many: of %d holds that ended (%s), the lock of one was granted again after %s only", m.taken,
				manyEnd[m.way], at.Sub(m.over))
		}
	}
	if m.longest > manyLimit {
		m.n.find("holder-many: when %d holds ended (%s), another client waited for %s", m.taken, manyEnd[m.way], m.longest)
	}
}

// clean deletes all locks of the fault.
func (m *many) clean() error {
	ctx := context.Background()
	return m.n.until(ctx, stepLimit, "the database of the fault is empty", func() bool {
		members := m.n.Target.Members()
		conn, err := m.dial(ctx, members[0], 0, manyLimit)
		if err != nil {
			return false
		}
		defer conn.Close()
		return conn.Do("FLUSHDB").Outcome == history.OK
	})
}

// String returns the longest delays of a grant and of a write.
func (m *many) String() string {
	if m.over.IsZero() {
		return ""
	}
	var each []string
	for _, at := range m.granted {
		if !at.IsZero() {
			each = append(each, at.Sub(m.over).Round(time.Millisecond).String())
		}
	}
	return fmt.Sprintf("(%d holds; the next after %s; others waited for %s at most)", m.taken, strings.Join(each, ", "),
		m.longest)
}
