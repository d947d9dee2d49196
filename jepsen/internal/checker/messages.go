package checker

import (
	"maps"
	"math"
	"slices"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Messages checks that all subscribers to a channel, on any node, receive its messages in one order and without gaps
// while they are connected.
//
//	publish channel, messages    (in that order)
//	heard   channels, from, until -> messages
//
// Each bit of channels is a channel of the connection. The connection must receive the messages that were published
// after from and acknowledged before the last received message was published, and, if until is not 0, those that were
// acknowledged by until.
func Messages(h *history.History) Result {
	r := newResult("messages", h.Count(history.OK))
	for key, ops := range h.ByKey() {
		m := messages{r: r, key: key, published: map[int64]publication{}}
		m.gather(ops)
		m.heard = slices.DeleteFunc(m.heard, func(o *history.Op) bool { return !m.judge(o) })
		for _, channels := range []int64{1, 2, 3, 4} {
			m.findTwoOrders(channels)
		}
	}
	return *r
}

// publication is a message.
type publication struct {
	*history.Op
	place int // among the messages of the operation
}

// surely returns the instant of the acknowledgement, or the largest instant without one.
func (p publication) surely() int64 {
	if p.Outcome == history.OK {
		return p.Return
	}
	return math.MaxInt64
}

type messages struct {
	r         *Result
	key       string
	published map[int64]publication
	order     []int64 // the messages published, in order of call
	heard     []*history.Op
}

func (m *messages) gather(ops []history.Op) {
	for i := range ops {
		switch o := &ops[i]; {
		case o.F == "publish":
			for n, id := range o.Input[1:] {
				m.published[id] = publication{o, n}
				m.order = append(m.order, id)
			}
		case o.F == "heard" && o.Outcome == history.OK:
			m.heard = append(m.heard, o)
			m.r.Counts["heard"] += len(o.Output)
			m.r.Counts["listeners"]++
		}
	}
}

// judge judges what was heard through one connection. It returns false if there were no such messages.
func (m *messages) judge(o *history.Op) bool {
	heard := map[int64]bool{}
	for _, id := range o.Output {
		p, known := m.published[id]
		switch {
		case !known:
			m.r.find("%s: no client published %d: %s", m.key, id, o)
			return false
		case p.Outcome == history.Fail:
			m.r.find("%s: what failed was heard: %s, %s", m.key, p, o)
		case o.In(0)&(1<<p.In(0)) == 0:
			m.r.find("%s: heard on another channel: %s, %s", m.key, p, o)
		case heard[id]:
			m.r.find("%s: %d was heard twice: %s", m.key, id, o)
		}
		heard[id] = true
	}
	m.findOutOfOrder(o)
	m.findGaps(o, heard)
	return true
}

// findOutOfOrder looks for a message that was received after another one, although it was acknowledged before that was
// published.
func (m *messages) findOutOfOrder(o *history.Op) {
	first, by := int64(math.MaxInt64), int64(0) // the earliest acknowledgement of a message received later
	places := map[*history.Op]int{}
	for _, id := range slices.Backward(o.Output) {
		p := m.published[id]
		if first < p.Call {
			m.r.find("%s: %d was heard behind %d, though it was acknowledged before: %s", m.key, by, id, o)
			return
		}
		if place, later := places[p.Op]; later && place < p.place {
			m.r.find("%s: %d was heard too early, as %s says: %s", m.key, id, p, o)
			return
		}
		places[p.Op] = p.place
		if at := p.surely(); at < first {
			first, by = at, id
		}
	}
}

// findGaps looks for messages that were not heard.
func (m *messages) findGaps(o *history.Op, heard map[int64]bool) {
	until := o.In(2)
	for _, id := range o.Output {
		until = max(until, m.published[id].Call-1)
	}
	for _, id := range m.order {
		p := m.published[id]
		if o.In(0)&(1<<p.In(0)) != 0 && p.Call > o.In(1) && p.surely() <= until && !heard[id] {
			m.r.find("%s: %d was not heard: %s, %s", m.key, id, p, o)
			return
		}
	}
}

// findTwoOrders reports two subscribers of the given channels that received different messages after the same message.
func (m *messages) findTwoOrders(channels int64) {
	next, before := map[int64]int64{}, map[int64]int64{}
	by := map[int64]*history.Op{} // who received the next message
	for _, o := range m.heard {
		if o.In(0)&channels != channels {
			continue
		}
		last, some := int64(0), false
		for _, id := range o.Output {
			if channels&(1<<m.published[id].In(0)) == 0 {
				continue
			}
			if some {
				if n, known := next[last]; known && n != id {
					m.r.find("%s: behind %d came %d for one, and %d for another: %s, %s", m.key, last, n, id, by[last], o)
					return
				}
				if b, known := before[id]; known && b != last {
					m.r.find("%s: before %d came %d for one, and %d for another: %s, %s", m.key, id, b, last, by[b], o)
					return
				}
				next[last], before[id], by[last] = id, last, o
			}
			last, some = id, true
		}
	}
	m.findCircle(next, by)
}

// findCircle looks for subscribers that received the same messages in different orders.
func (m *messages) findCircle(next map[int64]int64, by map[int64]*history.Op) {
	done := map[int64]bool{}
	for _, start := range slices.Sorted(maps.Keys(next)) {
		on := map[int64]bool{}
		id, more := start, true
		for more && !done[id] && !on[id] {
			on[id] = true
			id, more = next[id]
		}
		if on[id] {
			m.r.find("%s: %d comes before and behind itself: %s", m.key, id, by[id])
			return
		}
		maps.Copy(done, on)
	}
}
