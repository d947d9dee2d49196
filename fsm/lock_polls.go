package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// A client that polls for a stock lock waits for the lock, but has no entry in a queue. Each node observes the refused
// SETNX and SET NX commands in the log, and records their clients in bounded memory.

const (
	maxPolls       = 1 << 13 // bounds the recorded clients
	maxPollsOfKey  = 128     // bounds the recorded clients of one key
	maxPolledKey   = 1024    // bounds the bytes of a recorded key
	maxPolledToken = 256     // bounds the bytes of a recorded token
	// minPolls is the number of refusals after which a client counts as waiting. It counts until pollsWithin milliseconds
	// after its last refusal.
	minPolls, pollsWithin = 2, 5000
	sweepPollsEvery       = 1000 // the minimal time between two sweeps, in milliseconds; a sweep takes 0.1 ms
)

// polls records the clients that were refused stock locks. It is part of the lockWatch, and so not of the state.
type polls struct {
	// byKey has pointers, so that pollers change without an assignment to the map. An assignment would replace the key of
	// the map by a key that keeps a whole log entry in memory.
	byKey     map[lockKey]*pollers
	count     int   // the number of all recorded clients
	nextSweep int64 // the time of the next allowed sweep
}

// pollers has the clients that were refused one key.
type pollers struct{ all []poll }

// poll records the refusals of a client at one key.
type poll struct {
	token       string // the value that the client tried to store last
	client      locks.Client
	first, last int64 // the times of the first and of the last refusal
	refusals    int64
}

// StockWaiter describes a client that polls for a stock lock.
type StockWaiter struct {
	Owner       string // the value that the client tried to store last
	Origin      protocol.Incarnation
	Conn        int64 // 0 if the connection is unknown
	SinceMillis int64 // Unix time of the first refusal
	Refusals    int64
}

// refused records an event by which a client was refused a stock lock.
func (p *polls) refused(e *locks.Event, now int64) {
	if len(e.Key) > maxPolledKey || len(e.Owner) > maxPolledToken {
		return
	}
	at := lockKey{e.DB, e.Key}
	queue := p.drop(at, now)
	i := queue.find(e.Owner, e.Client)
	switch {
	case i >= 0:
		w := &queue.all[i]
		w.last = now
		w.refusals++
		if w.token != e.Owner {
			w.token = strings.Clone(e.Owner)
		}
		return
	case queue != nil && len(queue.all) >= maxPollsOfKey:
		return
	case p.count >= maxPolls:
		if p.sweep(now); p.count >= maxPolls {
			return
		}
	}
	if p.byKey == nil {
		p.byKey = make(map[lockKey]*pollers)
	}
	if queue = p.byKey[at]; queue == nil { // there was none, or the sweep has removed it
		queue = &pollers{}
		p.byKey[lockKey{e.DB, strings.Clone(e.Key)}] = queue
	}
	by := e.Client
	by.Origin.Node = strings.Clone(by.Origin.Node)
	queue.all = append(queue.all, poll{token: strings.Clone(e.Owner), client: by, first: now, last: now, refusals: 1})
	p.count++
}

// find returns the index of the client with a token or with a connection, or -1.
func (q *pollers) find(token string, client locks.Client) int {
	if q == nil {
		return -1
	}
	return slices.IndexFunc(q.all, func(w poll) bool {
		return w.token == token || w.client.Conn != 0 && w.client == client
	})
}

// drop removes the clients of a key that have stopped polling, and returns the others. It returns nil if none is left.
func (p *polls) drop(at lockKey, now int64) *pollers {
	queue := p.byKey[at]
	if queue == nil {
		return nil
	}
	were := len(queue.all)
	queue.all = slices.DeleteFunc(queue.all, func(w poll) bool { return w.last < now-pollsWithin })
	p.count -= were - len(queue.all)
	if len(queue.all) == 0 {
		delete(p.byKey, at)
		return nil
	}
	return queue
}

// sweep calls drop for all keys, but at most once a second.
func (p *polls) sweep(now int64) {
	if now < p.nextSweep {
		return
	}
	p.nextSweep = now + sweepPollsEvery
	for at := range p.byKey { // unordered: the keys do not affect each other
		p.drop(at, now)
	}
}

// granted removes a client that was granted the lock. polled reports whether the client had polled for it, and
// waitedMillis is the time since the first refusal.
func (p *polls) granted(at lockKey, token string, client locks.Client, now int64) (waitedMillis int64, polled bool) {
	if p.count == 0 {
		return 0, false
	}
	queue := p.byKey[at]
	i := queue.find(token, client)
	if i < 0 || queue.all[i].last < now-pollsWithin {
		return 0, false
	}
	waitedMillis = now - queue.all[i].first
	p.count--
	if queue.all = slices.Delete(queue.all, i, i+1); len(queue.all) == 0 {
		delete(p.byKey, at)
	}
	return waitedMillis, true
}

// of returns the recorded clients of a key.
func (p *polls) of(db int, key string) []poll {
	if queue := p.byKey[lockKey{db, key}]; queue != nil {
		return queue.all
	}
	return nil
}

// waits reports whether a client counts as waiting at the time now.
func (w *poll) waits(now int64) bool { return w.refusals >= minPolls && w.last >= now-pollsWithin }

// eachQueue calls f with each key that clients poll for and with the number of these clients, in no order.
func (p *polls) eachQueue(now int64, f func(key string, waiters int)) {
	for at, queue := range p.byKey { // unordered: f takes the maximum
		n := 0
		for i := range queue.all {
			if queue.all[i].waits(now) {
				n++
			}
		}
		f(at.key, n)
	}
}

func (m *machine) StockWaiters(db int, key string) (waiters []StockWaiter) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := m.call.watch.polls.of(db, key)
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

// verify returns an error if a count is wrong or a bound is exceeded.
func (p *polls) verify() error {
	n := 0
	for at, queue := range p.byKey { // unordered: the sum does not depend on the order
		all := queue.all
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
