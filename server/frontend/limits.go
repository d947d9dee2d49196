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

// limits enforces the quotas of users on this node: connections, and commands a second. The state machine enforces
// quotas of keys, bytes and waiters, which are part of the requests.
type limits struct {
	mu    sync.Mutex
	conns map[string]int   // authenticated connections, by user
	paces map[string]*pace // of users with a limit of commands a second
}

// userLimit has the quotas of the user of a connection.
type userLimit struct {
	acl.Quota
	pace *pace
}

// limited is the part of a connection in the limits.
type limited struct {
	srv *Server
	// limit is the user's, or nil. Any goroutine may replace it when the users change.
	limit atomic.Pointer[userLimit]
	// countedAs is the user that the connection counts for, or "".
	countedAs string
}

// move counts a connection for the user to, and no longer for the user from. It returns false, and changes nothing, if
// to has limit connections already; 0 is no limit. An empty name is no user.
func (l *limits) move(from, to string, limit uint64) bool {
	if from == to {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to != "" && limit != 0 && uint64(l.conns[to]) >= limit {
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

// of returns the quotas of a user, or nil.
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

// forget drops the paces of users that have no limit any more.
func (l *limits) forget(now *acl.Users) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.paces {
		if u := now.Find(name); u == nil || u.Quota() == nil || u.Quota().CommandsPerSecond == 0 {
			delete(l.paces, name)
		}
	}
}

// usage returns what users with quotas use of this node.
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

// pace spreads the commands of a user over time. A burst may have as many commands as a second.
type pace struct {
	mu sync.Mutex
	// free is the time at which all commands so far would have run, one after another at the limit.
	free   time.Time
	paused time.Duration
}

// burst bounds the time for which a user may save commands up. maxPause bounds the pause of a connection, and so
// the debt of a user who opens connections, sends and closes them.
const (
	burst    = time.Second
	maxPause = 10 * time.Second
)

// take counts n commands, and returns how long the connection must pause.
func (p *pace) take(now time.Time, n int, perSecond uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if least := now.Add(-burst); p.free.Before(least) {
		p.free = least
	}
	p.free = p.free.Add(time.Duration(uint64(n) * uint64(time.Second) / perSecond))
	if latest := now.Add(maxPause); p.free.After(latest) {
		p.free = latest
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

// pauseStep is the interval at which a pausing connection checks whether it must end.
const pauseStep = 50 * time.Millisecond

// keepPace pauses before the commands of a pipeline if the user has sent too many. A connection reads nothing
// meanwhile, so the client is slowed down, and gets no error.
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

// setLimit updates the limits of the connection's user.
func (q *limited) setLimit(user string) {
	q.limit.Store(q.srv.limits.of(q.srv.cfg.Users.Held().Find(user)))
}

// countAs counts the connection for a user. It returns false, and changes nothing, if the user has limit already.
func (q *limited) countAs(name string, limit uint64) bool {
	if !q.srv.limits.move(q.countedAs, name, limit) {
		return false
	}
	q.countedAs = name
	return true
}

// appendQuota appends the quotas of the user before a request that may write.
func (q *limited) appendQuota(body []byte, write bool) []byte {
	l := q.limit.Load()
	if l == nil || !write || !l.InLog() {
		return body
	}
	return protocol.AppendQuota(body, &l.Quota.Quota)
}
