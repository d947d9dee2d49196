package nemesis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
)

// holderFaults hit clients that hold locks in sessions bound to their connections. Such a lock must be free soon after
// its lease, and not before. No other fault is active meanwhile.
var holderFaults = []fault{
	{alone(kind("holder-frozen", schedule.Clients, 8*second, 10*second, nil,
		"clients that hold locks send nothing any more, while their kernels answer")), drawn, holders(false)},
	{alone(kind("holder-vanished", schedule.Clients, 8*second, 10*second, nil,
		"all packets between clients that hold locks and the nodes are lost")), drawn, holders(true)},
	{alone(kind("holder-many", schedule.Clients, 5*second, 8*second, size(0, manyWays),
		"thousands of holds end at once: a session is closed or lost, leases end in one instant, DEL of a lock with as "+
			"many holders, FLUSHDB")), drawn, (*Nemesis).endMany},
}

const (
	holderCount = 6
	// holderSlack is the tolerated delay of a free lock beyond the kernel's timeouts, as the machine is busy.
	holderSlack = 3 * second
	// holderLife is how long holders send keepalives.
	holderLife = 4 * second
	// holderWait is longer than all of these.
	holderWait = 30 * second
)

// holder is a client with a lock, and a second client that waits for that lock through another node.
type holder struct {
	key       string
	lease     time.Duration
	heartbeat bool // it must send something within its lease, or the node closes its connection
	kept      bool // the node renews its session while the connection is open, so the lock stays held
	conn      *wire.Conn
	next      *wire.Conn
	// sent and answered are when the last answered command was sent, and when it was answered.
	sent, answered time.Time
	granted        chan time.Time // when the waiter is granted the lock; closed when it stops waiting
	sockets        []net.Conn
}

// holders returns a fault in which holders freeze, or in which their packets are lost.
func holders(vanish bool) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members := n.Target.Members()
		side := s.Rand().IntN(n.Target.Sides())
		if n.Target.Sides() < 2 || side >= len(members) || members[side] != network.NodeName(side) {
			return effect{detail: "members have moved"}, nil
		}
		place := network.ClientsOf(members[side])
		all := n.newHolders(s, vanish)
		e := effect{detail: "clients at " + place, mend: func() error {
			for _, h := range all {
				h.close()
			}
			return n.wholeNet()
		}}
		each := func(do func(i int, h *holder)) {
			var wg sync.WaitGroup
			for i, h := range all {
				wg.Go(func() { do(i, h) })
			}
			wg.Wait()
		}
		end := time.Now().Add(holderLife)
		each(func(i int, h *holder) {
			if h.open(ctx, n, side, i) {
				h.live(ctx, end)
			}
		})
		if vanish {
			var state network.State
			for _, m := range members {
				state.Cut = append(state.Cut, network.Link{From: place, To: m}, network.Link{From: m, To: place})
			}
			if err := n.Net.Set(state); err != nil {
				return e, err
			}
		}
		free := make([]string, len(all))
		each(func(i int, h *holder) { free[i] = n.judgeHolder(ctx, s.Fault, h) })
		e.details = func() string { return "(" + strings.Join(free, ", ") + ")" }
		return e, nil
	}
}

// newHolders draws the holders of a step.
func (n *Nemesis) newHolders(s step, vanish bool) (all []*holder) {
	rng := s.Rand()
	for i := range holderCount {
		h := &holder{
			key:     fmt.Sprintf("jepsen-holder:%d:%d", s.At.Milliseconds(), i),
			lease:   time.Duration(1+rng.IntN(2)) * second,
			granted: make(chan time.Time, 1),
		}
		plain := i == 0 && (!vanish || n.Net.Kind() == "kernel") // only the kernel gives up a silent client
		h.heartbeat, h.kept = !plain, plain && !vanish
		all = append(all, h)
	}
	return all
}

// open acquires the lock through one node and waits for it through the next, as a client of another side. It reports
// whether both succeeded.
func (h *holder) open(ctx context.Context, n *Nemesis, side, at int) bool {
	members := n.Target.Members()
	session := func(side, at int, lease time.Duration, more ...string) (conn *wire.Conn, id string) {
		d, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		nc, err := n.Target.Dial(d, side, members[at%len(members)])
		if err != nil {
			return nil, ""
		}
		h.sockets = append(h.sockets, nc)
		conn = wire.New(nc, holderSlack)
		r := conn.Do(append([]string{"SESSION.OPEN", "PX", millis(lease), "CONNECTION"}, more...)...)
		if r.Outcome != history.OK {
			return conn, ""
		}
		return conn, strconv.FormatInt(r.Value.Num, 10)
	}
	var id, nextID string
	if h.heartbeat {
		h.conn, id = session(side, at, h.lease, "HEARTBEAT")
	} else {
		h.conn, id = session(side, at, h.lease)
	}
	h.next, nextID = session((side+1)%n.Target.Sides(), at+1, holderWait)
	sent := time.Now()
	if id == "" || nextID == "" || !isGrant(h.conn.Do("LOCK.ACQUIRE", h.key, "holder", "SESSION", id)) {
		close(h.granted)
		return false
	}
	h.sent, h.answered = sent, time.Now()
	go func() {
		defer close(h.granted)
		if isGrant(h.next.DoWithin(holderWait, "LOCK.ACQUIRE", h.key, "next", "SESSION", nextID, "WAIT",
			millis(holderWait))) {
			h.granted <- time.Now()
		}
	}()
	return true
}

func isGrant(r wire.Reply) bool {
	return r.Outcome == history.OK && r.Value.Kind == protocol.KindInteger && r.Value.Num > 0
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// live sends keepalives until end. Any answer proves that the session, which is bound to the connection, exists.
func (h *holder) live(ctx context.Context, end time.Time) {
	for time.Now().Before(end) {
		began := time.Now()
		if h.conn.Do("PING").Outcome != history.OK {
			return
		}
		h.sent, h.answered = began, time.Now()
		if !workload.Sleep(ctx, h.lease/4) {
			return
		}
	}
}

// judgeHolder waits until the waiter is granted the lock, and describes how long that took.
func (n *Nemesis) judgeHolder(ctx context.Context, fault string, h *holder) string {
	if h.answered.IsZero() {
		return "not judged" // the holder never had its lock
	}
	limit := max(h.lease*5/4, 2*second) + holderSlack
	timer := time.NewTimer(time.Until(h.answered.Add(limit)))
	defer timer.Stop()
	var at time.Time
	ok, over := false, false
	select {
	case at, ok = <-h.granted:
	case <-ctx.Done():
	case <-timer.C:
		over = true
	}
	took := at.Sub(h.sent).Round(time.Millisecond)
	switch {
	case over && h.kept:
		return "kept"
	case over:
		n.find("%s: %s was not free %s after its holder, PX %s, was heard last", fault, h.key, limit, h.lease)
		return "never"
	case !ok:
		return "not judged"
	case h.kept:
		n.find("%s: %s was taken from a client whose connection stood, and who had promised nothing", fault, h.key)
	case took < h.lease:
		n.find("%s: two holders of %s: the next was granted it %s after a command that was answered, PX %s", fault, h.key,
			took, h.lease)
	case took > limit+h.answered.Sub(h.sent):
		n.find("%s: %s was free after %s only, PX %s", fault, h.key, took, h.lease)
	}
	return took.String()
}

// close closes both connections, which ends their sessions.
func (h *holder) close() {
	for _, nc := range h.sockets {
		nc.Close()
	}
}
