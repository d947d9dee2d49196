package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Sharing checks read-write locks: while a client believes that it holds the lock to write, no other believes that it
// holds the lock, and no client is denied its lock while its lease runs. It reads acquire, extend and release of a
// writer as [OwnerLock] does, and of a reader
func Sharing(c Clocks) Func {
	return func(h *history.History) Result {
		r := newResult("sharing", h.Count(history.OK))
		for key, ops := range h.ByKey() {
			beliefs := holds(r, key, ops, c)
			r.Counts["grants"] += len(beliefs)
			findShared(r, key, beliefs)
		}
		return *r
	}
}

// holding is a [Belief] that others may share, if shared is set.
type holding struct {
	Belief
	shared bool
}

// lastMilli is the time by which a reader's lease may end early: when another reader releases the lock, Redisson
// deletes it if PTTL has no whole millisecond for any other lease.
const lastMilli = int64(time.Millisecond)

// holds returns the beliefs of one key's clients, in the order in which they began. An extension counts if its reply
// came while the lease ran, since Redisson's extension of an expired lease of a reader keeps no writer out.
func holds(r *Result, key string, ops []history.Op, c Clocks) []*holding {
	var all []*holding
	last := map[int64]*holding{}
	until := func(o *history.Op) int64 {
		if o.F == "share" || o.F == "extend-shared" {
			return o.Call + c.shortest(o.In(1)) - lastMilli
		}
		return o.Call + c.shortest(o.In(1))
	}
	for i := range ops {
		o := &ops[i]
		b := last[o.In(0)]
		said := o.Outcome == history.OK && o.Out(0) == 1
		switch o.F {
		case "acquire", "share":
			if end := until(o); said && end > o.Return {
				b = &holding{Belief{o.In(0), o.Return, end, o}, o.F == "share"}
				last[o.In(0)] = b
				all = append(all, b)
			}
		case "extend", "extend-shared", "release", "release-shared":
			if b == nil {
				continue
			}
			if o.Outcome == history.OK && !said && o.Return < b.Until {
				r.find("%s: lost a lease that ran until %.3f: %s", key, seconds(b.Until), o)
			}
			extends := o.F == "extend" || o.F == "extend-shared"
			if extends && said && o.Return <= b.Until {
				b.Until = until(o)
			}
			if !extends || !said {
				b.Until = min(b.Until, o.Call)
				delete(last, o.In(0))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *holding) int { return cmp.Compare(a.From, b.From) })
	return all
}

// findShared reports beliefs that overlap, if one of them is a writer's.
func findShared(r *Result, key string, beliefs []*holding) {
	var longest, writer *holding // with the latest end, of all and of the writers
	for _, b := range beliefs {
		if b.Until <= b.From {
			continue
		}
		for _, a := range []*holding{longest, writer} {
			if a != nil && a.Until > b.From && a.Owner != b.Owner && !(a.shared && b.shared) {
				r.Counts["double grants"]++
				r.find("%s: two holders for %s: %s, held until %.3f; then %s", key,
					time.Duration(min(a.Until, b.Until)-b.From), a.Grant, seconds(a.Until), b.Grant)
				break
			}
		}
		if longest == nil || b.Until > longest.Until {
			longest = b
		}
		if !b.shared && (writer == nil || b.Until > writer.Until) {
			writer = b
		}
	}
}

// Wakes checks that clients that wait for a lock receive the message of its release.
//
//	release owner       -> [1]
//	wait    owner, from -> [1] if a message came, [0] if none has come yet
//
// The client has been subscribed since the time from, on a connection that is open until the wait ends.
func Wakes(b TTLBounds) Func {
	return func(h *history.History) Result {
		r := newResult("wake-ups", h.Count(history.OK))
		excused := excuses(h, b)
		for key, ops := range h.ByKey() {
			for i := range ops {
				if o := &ops[i]; o.F == "wait" {
					r.Counts["waits"]++
					findAsleep(r, key, ops, o, int64(b.Late), excused)
				}
			}
		}
		return *r
	}
}

// findAsleep looks for a release of which a client received no message.
func findAsleep(r *Result, key string, ops []history.Op, wait *history.Op, late int64, excused []history.Span) {
	if wait.Out(0) == 1 {
		return
	}
	for i := range ops {
		o := &ops[i]
		if o.F != "release" || o.Outcome != history.OK || o.Out(0) != 1 || o.Call <= wait.In(1) {
			continue
		}
		if asleep := wait.Call - o.Return; asleep > late+within(excused, o.Return, wait.Call) {
			r.find("%s: %s is waited for %s behind %s", key, wait, time.Duration(asleep), o)
			return
		}
	}
}
