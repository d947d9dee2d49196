package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// A client that polls for a stock lock waits for it, but has no entry in a queue. Each node sees the refused SETNX and
// SET NX in the log, and remembers the clients in bounded memory.

const (
	// maxPolls bounds the waiters that are remembered, and maxPollsOfKey those of one key.
	maxPolls, maxPollsOfKey = 1 << 13, 128
	// maxPolledKey and maxPolledToken bound the remembered texts, in bytes.
	maxPolledKey, maxPolledToken = 1024, 256
	// pollsWithin is the time for which a refused client counts as waiting, and leastPolls the refusals before it does.
	pollsWithin, leastPolls = 5000, 2
	// sweepPollsEvery is the least time between two sweeps, which take 0.1 ms.
	sweepPollsEvery = 1000
)

// polls has the clients that are refused again and again.
type polls struct {
	// byKey has pointers, so that an assignment to a present key does not replace the key: the new key shares memory with
	// a whole log entry.
	byKey map[lockKey]*pollers
	count int
	// nextSweep is the first instant at which a refusal without room may sweep again.
	nextSweep int64
}

// pollers has the clients that poll for one key.
type pollers struct{ all []poll }

// poll is a client that was refused a key.
type poll struct {
	token  string
	client locks.Client
	// first and last are the instants of refusals, and refusals counts them since first.
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

// refused records that a client was refused a stock lock.
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
	if queue = p.byKey[at]; queue == nil { // also if the sweep took it
		queue = &pollers{}
		p.byKey[lockKey{e.DB, strings.Clone(e.Key)}] = queue
	}
	by := e.Client
	by.Origin.Node = strings.Clone(by.Origin.Node)
	queue.all = append(queue.all, poll{token: strings.Clone(e.Owner), client: by, first: now, last: now, refusals: 1})
	p.count++
}

// find returns the index of a client, by its token or its connection, or -1.
func (q *pollers) find(token string, client locks.Client) int {
	if q == nil {
		return -1
	}
	return slices.IndexFunc(q.all, func(w poll) bool {
		return w.token == token || w.client.Conn != 0 && w.client == client
	})
}

// drop removes the clients of a key that have stopped polling, and returns the others, or nil.
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

// sweep is drop for all keys, at most once a second.
func (p *polls) sweep(now int64) {
	if now < p.nextSweep {
		return
	}
	p.nextSweep = now + sweepPollsEvery
	for at := range p.byKey { // unordered: each is looked at for itself
		p.drop(at, now)
	}
}

// granted removes a client that was granted the lock, and returns the time for which it had polled.
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

// of returns the clients that were refused a key.
func (p *polls) of(db int, key string) []poll {
	if queue := p.byKey[lockKey{db, key}]; queue != nil {
		return queue.all
	}
	return nil
}

// waits reports whether a client counts as waiting at an instant.
func (w *poll) waits(now int64) bool { return w.refusals >= leastPolls && w.last >= now-pollsWithin }

// eachQueue calls f with each key that clients poll for, in no order.
func (p *polls) eachQueue(now int64, f func(key string, waiters int)) {
	for at, queue := range p.byKey { // unordered: f takes the most
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

// verify returns an error if counts or bounds are wrong.
func (p *polls) verify() error {
	n := 0
	for at, queue := range p.byKey { // unordered: sums
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
