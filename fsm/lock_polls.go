package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// A client that polls for a stock lock waits, though the log knows of no line. Each node sees every refused SETNX and
// SET NX in the log, and remembers who was refused, in bounded memory.

const (
	// maxPolls is how many waiters are remembered, and maxPollsOfKey of one key.
	maxPolls, maxPollsOfKey = 1 << 13, 128
	// maxPolledKey and maxPolledToken bound what is remembered of a waiter, in bytes.
	maxPolledKey, maxPolledToken = 1024, 256
	// pollsWithin is how long after a refusal a client is taken to wait, and leastPolls the refusals that make a waiter.
	pollsWithin, leastPolls = 5000, 2
	// sweepPollsEvery is the least time between two looks at all waiters for room: a look takes 0.1 ms.
	sweepPollsEvery = 1000
)

// polls are those who are refused again and again.
type polls struct {
	byKey map[lockKey][]poll
	count int
	// nextSweep is the instant from which on a refusal that finds no room may look for room among all.
	nextSweep int64
}

// poll is a client that was refused a key.
type poll struct {
	token  string
	client locks.Client
	// first and last are the instants of refusals, refusals their number since first.
	first, last int64
	refusals    int64
}

// StockWaiter is a client that polls for a stock lock.
type StockWaiter struct {
	Owner       string // what it would store
	Origin      protocol.Incarnation
	Conn        int64 // 0: not known
	SinceMillis int64 // Unix time of the first refusal
	Refusals    int64
}

// refused notes that a client was refused a stock lock.
func (p *polls) refused(e *locks.Event, now int64) {
	if len(e.Key) > maxPolledKey || len(e.Owner) > maxPolledToken {
		return
	}
	at := lockKey{e.DB, e.Key}
	all := p.drop(at, now)
	i := p.find(all, e)
	switch {
	case i >= 0:
		all[i].last = now
		all[i].refusals++
		if all[i].token != e.Owner {
			all[i].token = strings.Clone(e.Owner)
		}
		return
	case len(all) >= maxPollsOfKey:
		return
	case p.count >= maxPolls:
		if p.sweep(now); p.count >= maxPolls {
			return
		}
	}
	if p.byKey == nil {
		p.byKey = make(map[lockKey][]poll)
	}
	if len(all) == 0 {
		at.key = strings.Clone(at.key)
	}
	by := e.Client
	by.Origin.Node = strings.Clone(by.Origin.Node)
	p.byKey[at] = append(p.byKey[at], poll{
		token: strings.Clone(e.Owner), client: by, first: now, last: now, refusals: 1,
	})
	p.count++
}

// find is the place of the client that an event tells of: the same token, or the same connection.
func (p *polls) find(all []poll, e *locks.Event) int {
	return slices.IndexFunc(all, func(w poll) bool {
		return w.token == e.Owner || w.client.Conn != 0 && w.client == e.Client
	})
}

// drop forgets those who poll for a key no more, and returns the others.
func (p *polls) drop(at lockKey, now int64) []poll {
	all := p.byKey[at]
	left := slices.DeleteFunc(all, func(w poll) bool { return w.last < now-pollsWithin })
	if len(left) < len(all) {
		p.count -= len(all) - len(left)
		if len(left) == 0 {
			delete(p.byKey, at)
		} else {
			p.byKey[at] = left
		}
	}
	return left
}

// sweep is drop for all keys. It looks at all of them once a second and not at each refusal that finds no room.
func (p *polls) sweep(now int64) {
	if now < p.nextSweep {
		return
	}
	p.nextSweep = now + sweepPollsEvery
	for at := range p.byKey { // unordered: each is looked at for itself
		p.drop(at, now)
	}
}

// granted forgets that a client polled, and returns how long it did.
func (p *polls) granted(e *locks.Event, now int64) (waitedMillis int64, polled bool) {
	if p.count == 0 {
		return 0, false
	}
	at := lockKey{e.DB, e.Key}
	all := p.byKey[at]
	i := p.find(all, e)
	if i < 0 || all[i].last < now-pollsWithin {
		return 0, false
	}
	waitedMillis = now - all[i].first
	p.count--
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(p.byKey, at)
	} else {
		p.byKey[at] = all
	}
	return waitedMillis, true
}

// waits reports whether a client is taken to wait at an instant.
func (w *poll) waits(now int64) bool { return w.refusals >= leastPolls && w.last >= now-pollsWithin }

// eachQueue calls f with each key that clients poll for, in no order.
func (p *polls) eachQueue(now int64, f func(key string, waiters int)) {
	for at, all := range p.byKey { // unordered: f takes the most
		n := 0
		for i := range all {
			if all[i].waits(now) {
				n++
			}
		}
		f(at.key, n)
	}
}

func (m *machine) StockWaiters(db int, key string) (waiters []StockWaiter) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := m.call.watch.polls.byKey[lockKey{db, key}]
	for i := range all {
		if w := &all[i]; w.waits(m.st.ClockMillis) {
			waiters = append(waiters, StockWaiter{
				Owner: w.token, Origin: w.client.Origin, Conn: w.client.Conn,
				SinceMillis: command.SaturatingAdd(w.first, m.st.wallOffsetMillis), Refusals: w.refusals,
			})
		}
	}
	return waiters
}

// verify returns what contradicts itself: counts and bounds.
func (p *polls) verify() error {
	n := 0
	for at, all := range p.byKey { // unordered: sums
		n += len(all)
		if len(all) == 0 || len(all) > maxPollsOfKey || len(at.key) > maxPolledKey {
			return fmt.Errorf("%d poll for a key of %d bytes", len(all), len(at.key))
		}
		for i := range all {
			if w := &all[i]; w.first > w.last || w.refusals < 1 || len(w.token) > maxPolledToken {
				return fmt.Errorf("refusals of %q are %+v", at.key, *w)
			}
		}
	}
	if n != p.count || n > maxPolls {
		return fmt.Errorf("%d poll, counted as %d", n, p.count)
	}
	return nil
}
