package frontend

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/frontend/metrics"
)

// limits are what users have of this node: connections, and commands a second. Keys, bytes and waiters are the state
// machine's: their limits go along with the requests.
type limits struct {
	mu    sync.Mutex
	conns map[string]int   // authenticated connections, by user
	paces map[string]*pace // of users whose commands a second are limited
}

// userLimit is what the user of a connection may have.
type userLimit struct {
	acl.Quota
	pace *pace
}

// limited is a connection's part of the limits.
type limited struct {
	srv *Server
	// limit is the user's; nil: there is none. Any goroutine may replace it, when the users change.
	limit atomic.Pointer[userLimit]
	// countedAs is the user whose connection this is; empty: nobody's yet.
	countedAs string
}

// move counts a connection for another user, unless that one has as many as the user may have; 0: any number. An empty
// name is nobody.
func (l *limits) move(from, to string, most uint64) bool {
	if from == to {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to != "" && most != 0 && uint64(l.conns[to]) >= most {
		return false
	}
	if l.conns == nil {
		l.conns = make(map[string]int)
	}
	if to != "" {
		l.conns[to]++
	}
	if from != "" {
		if l.conns[from]--; l.conns[from] == 0 {
			delete(l.conns, from)
		}
	}
	return true
}

// of is what a user may have, nil if there is no limit.
func (l *limits) of(u *acl.User) *userLimit {
	if u == nil || u.Quota() == nil {
		return nil
	}
	limit := &userLimit{Quota: *u.Quota()}
	if limit.CommandsPerSecond == 0 {
		return limit
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit.pace = l.paces[u.Name]; limit.pace == nil {
		if l.paces == nil {
			l.paces = make(map[string]*pace)
		}
		limit.pace = new(pace)
		l.paces[u.Name] = limit.pace
	}
	return limit
}

// forget drops the paces of users that have none any more.
func (l *limits) forget(now *acl.Users) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.paces {
		if u := now.Find(name); u == nil || u.Quota() == nil || u.Quota().CommandsPerSecond == 0 {
			delete(l.paces, name)
		}
	}
}

// usage is what users with limits have of this node.
func (l *limits) usage(users *acl.Users) (all []metrics.UserLimits) {
	for _, name := range users.Names() {
		q := users.Find(name).Quota()
		if q == nil {
			continue
		}
		u := metrics.UserLimits{Quota: q.Quota, MaxConnections: q.Connections, MaxRate: q.CommandsPerSecond}
		l.mu.Lock()
		u.Connections = l.conns[name]
		p := l.paces[name]
		l.mu.Unlock()
		if p != nil {
			u.Paused = p.pausedFor()
		}
		all = append(all, u)
	}
	return all
}

// pace spreads the commands of a user over time. As many as in a second may come at once.
type pace struct {
	mu sync.Mutex
	// free is when all commands so far would have been run, one after another at the limit.
	free   time.Time
	paused time.Duration
}

// burst is how long a user may save up commands, longestPause the longest that a connection is kept waiting: who opens
// connections, sends and closes owes no more.
const (
	burst        = time.Second
	longestPause = 10 * time.Second
)

// take counts n commands, and returns for how long the connection has to pause.
func (p *pace) take(now time.Time, n int, perSecond uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if least := now.Add(-burst); p.free.Before(least) {
		p.free = least
	}
	p.free = p.free.Add(time.Duration(uint64(n) * uint64(time.Second) / perSecond))
	if most := now.Add(longestPause); p.free.After(most) {
		p.free = most
	}
	pause := max(0, p.free.Sub(now))
	p.paused += pause
	return pause
}

func (p *pace) pausedFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// pauseStep is how often a connection that pauses looks whether it has to end.
const pauseStep = 50 * time.Millisecond

// keepPace is called before the commands of a pipeline run: it pauses if the user has sent too many. A connection that
// pauses does not read on, so the client is slowed down and gets no error.
func (q *limited) keepPace(ctx context.Context, commands int, retired *atomic.Bool) {
	l := q.limit.Load()
	if l == nil || l.pace == nil || commands == 0 {
		return
	}
	pause := l.pace.take(time.Now(), commands, l.CommandsPerSecond)
	for pause > 0 && !retired.Load() {
		step := min(pause, pauseStep)
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return
		}
		pause -= step
	}
}

// setLimit takes the limits of the connection's user as they are now.
func (q *limited) setLimit(user string) {
	q.limit.Store(q.srv.limits.of(q.srv.cfg.Users.Held().Find(user)))
}

// countAs counts the connection for its user, if it is authenticated. If there is no room nothing changes.
func (q *limited) countAs(name string, most uint64) bool {
	if !q.srv.limits.move(q.countedAs, name, most) {
		return false
	}
	q.countedAs = name
	return true
}

// appendQuota puts what the user may have in front of a request that may write.
func (q *limited) appendQuota(body []byte, write bool) []byte {
	l := q.limit.Load()
	if l == nil || !write || !l.InLog() {
		return body
	}
	return protocol.AppendQuota(body, &l.Quota.Quota)
}
