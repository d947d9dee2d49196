package sessions

import (
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/server/push"
)

// Client is a connection. The methods are called by any goroutine, and must not block or call the renewer.
type Client interface {
	// SetLease gives the shortest lease of the connection's sessions. If nothing is heard of the client for that
	// long, the connection has to end, and no sooner.
	SetLease(shortest time.Duration)
	// Heard is when the client sent something last. It is called only if that was demanded.
	Heard() time.Time
	// Post sends a message.
	Post(m *push.Message)
	// Cut closes the connection.
	Cut(why string)
}

// Renewer has the connections of this node that use locks, and renews their sessions.
type Renewer struct {
	cluster    *Cluster
	departures *departures
	// wakeRenewer and wakeCutter end the sleep of Run's goroutines.
	wakeRenewer, wakeCutter chan struct{}

	mu      sync.Mutex
	clients map[int64]*client
	// sessions are ordered by their leases.
	sessions *btree.BTreeG[*session]
	expected map[*session]struct{}
	// silent are the connections whose clients have to send something, by when to look for it.
	silent *btree.BTreeG[*client]
	// renewed is when the last renewal began that was acknowledged.
	renewed time.Time
	// later are connections that were cut: their sessions have time to be attached elsewhere.
	later []cut
	cuts  uint64
	// stopping: this node ends.
	stopping bool
}

// client is a connection with its sessions.
type client struct {
	id       int64
	to       Client
	sessions map[uint64]*session // by id
	// expected are sessions whose command this node's log does not have yet. The same session may already be in sessions.
	expected []*session
	// asked is when the last command went out that may have made or attached a session; zero: there was none.
	asked time.Time
	// shortest is the shortest lease that there was, 0 if there was none.
	shortest time.Duration
	// cut: the connection is being closed, and lease is the longest of the sessions that it had.
	cut   bool
	lease time.Duration
	// demanded: the client has to send something within the shortest lease of its sessions. checkAt is when to check;
	// zero: the client is not in Renewer.silent.
	demanded bool
	checkAt  time.Time
}

// session is a session of a connection. It does not change.
type session struct {
	id    uint64 // 0: not in the log yet
	conn  int64
	lease time.Duration
	// since is when it surely had its whole lease.
	since time.Time
	// number is the batch behind an expected session.
	number uint64
}

// cut is a connection that was cut, and when its sessions are to be ended.
type cut struct {
	conn int64
	at   time.Time
}

// LeastLease is the shortest lease of a session that lives with a connection.
const LeastLease = time.Second

func newRenewer(c *Cluster, d *departures) *Renewer {
	return &Renewer{
		cluster: c, departures: d, wakeRenewer: make(chan struct{}, 1), wakeCutter: make(chan struct{}, 1),
		clients: make(map[int64]*client), expected: make(map[*session]struct{}), sessions: btree.NewBTreeGOptions(before,
			btree.Options{NoLocks: true}),
		silent: btree.NewBTreeGOptions(checkedBefore, btree.Options{NoLocks: true}),
	}
}

func before(a, b *session) bool {
	switch {
	case a.lease != b.lease:
		return a.lease < b.lease
	case a.conn != b.conn:
		return a.conn < b.conn
	case a.id != b.id:
		return a.id < b.id
	}
	return a.number < b.number
}

// Enter notes a connection that may get sessions or locks. It must be called before the first command for
// that goes to the cluster.
func (r *Renewer) Enter(conn int64, to Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[conn] = &client{id: conn, to: to, sessions: make(map[uint64]*session)}
	if len(r.clients) == 1 {
		r.cluster.SubscribeSessions(true)
	}
}

// Leave notes that a connection has closed. ended: its sessions end with it. Else this node ends, and leaves
// the sessions the time that they have.
func (r *Renewer) Leave(conn int64, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil {
		return
	}
	delete(r.clients, conn)
	if len(r.clients) == 0 {
		r.cluster.SubscribeSessions(false)
	}
	some := len(c.sessions)+len(c.expected) > 0
	r.drop(c)
	r.stopping = r.stopping || !ended
	switch {
	case !ended:
	case c.cut:
		r.later = append(r.later, cut{conn, time.Now().Add(c.lease)})
		wake(r.wakeRenewer)
	case some:
		r.departures.addConn(conn)
	}
}

// Vanished notes that a connection ends because nothing was heard of its client for the shortest lease. [Renewer.Leave]
// follows. A client behind a partition believes in a session with a longer lease: such a session has the rest of it.
func (r *Renewer) Vanished(conn int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil && !c.cut && len(c.sessions)+len(c.expected) > 0 {
		r.abandon(c, c.shortest)
	}
}

// abandon leaves the sessions of a connection that is being closed the longest lease, but for what has passed.
// The caller holds r.mu.
func (r *Renewer) abandon(c *client, passed time.Duration) {
	c.cut = true
	for _, s := range c.sessions {
		c.lease = max(c.lease, s.lease)
	}
	for _, s := range c.expected {
		c.lease = max(c.lease, s.lease)
	}
	c.lease = max(c.lease-passed, 0)
	r.drop(c)
}

// Sessions is the number of sessions that live with a connection, or may.
func (r *Renewer) Sessions(conn int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil {
		return 0
	}
	return len(c.sessions) + len(c.expected)
}

// drop forgets the sessions of a connection. The caller holds r.mu.
func (r *Renewer) drop(c *client) {
	for _, s := range c.sessions {
		r.sessions.Delete(s)
	}
	for _, s := range c.expected {
		r.sessions.Delete(s)
		delete(r.expected, s)
	}
	clear(c.sessions)
	c.expected = nil
	r.scheduleCheck(c, time.Time{})
}

// Ask notes that a command goes out now that may make or attach a session of the connection. The lease of the session
// may run from now on, however long the log takes.
func (r *Renewer) Ask(conn int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil {
		c.asked = now
	}
}

// Expect notes that the batch with that number, executed since began, made or attached a session of this connection, or
// may have: until this node's log has the batch, the session is renewed as one with that lease. 0: not known.
func (r *Renewer) Expect(conn int64, lease time.Duration, number uint64, began time.Time) {
	if r.cluster.Applied(number) {
		return // the log has the batch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil || c.cut {
		return
	}
	s := &session{conn: conn, lease: max(lease, LeastLease), since: began, number: number}
	if old, replaced := r.sessions.Set(s); replaced {
		r.removeExpected(c, old)
	}
	c.expected = append(c.expected, s)
	r.expected[s] = struct{}{}
	if lease > 0 {
		c.shorten(s.lease)
	}
	r.wakeBoth()
}

// removeExpected drops an expected session that is no longer in the tree. The caller holds r.mu.
func (r *Renewer) removeExpected(c *client, s *session) {
	delete(r.expected, s)
	c.expected = slices.DeleteFunc(c.expected, func(other *session) bool { return other == s })
}

// sessionAttached notes, by this node's log, that a session lives with a connection.
func (r *Renewer) sessionAttached(conn int64, id uint64, leaseMillis int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	since := time.Now()
	if c != nil && !c.asked.IsZero() {
		since = c.asked
	}
	r.attach(c, conn, id, lease(leaseMillis), since)
}

// attach notes a session of connection c, nil if it has closed. The caller holds r.mu.
func (r *Renewer) attach(c *client, conn int64, id uint64, lease time.Duration, since time.Time) {
	switch {
	case c == nil && r.stopping:
		return
	case c == nil:
		r.departures.addConn(conn) // it closed before its command was applied
		return
	case c.cut:
		c.lease = max(c.lease, lease)
		return
	}
	for _, s := range c.expected {
		if s.since.Before(since) {
			since = s.since
		}
	}
	if old := c.sessions[id]; old != nil {
		r.sessions.Delete(old)
		since = old.since
	}
	s := &session{id: id, conn: conn, lease: lease, since: since}
	c.sessions[id] = s
	r.sessions.Set(s)
	c.shorten(lease)
	if now := time.Now(); !now.Before(since.Add(trustedFor(lease))) && !now.Before(r.renewed.Add(trustedFor(lease))) {
		// At once: the session may be over, and a renewal that succeeds now would hide that.
		r.cutOff(conn)
		return
	}
	r.awaitSign(c, lease)
	r.wakeBoth()
}

// shorten gives the connection a lease that is shorter than those before. The caller holds r.mu.
func (c *client) shorten(lease time.Duration) {
	if c.shortest == 0 || lease < c.shortest {
		c.shortest = lease
		c.to.SetLease(lease)
	}
}

// wakeBoth wakes both goroutines of Run. The caller holds r.mu.
func (r *Renewer) wakeBoth() {
	wake(r.wakeRenewer)
	wake(r.wakeCutter)
}

// sessionDetached notes, by this node's log, that a session does not live with a connection any more.
func (r *Renewer) sessionDetached(conn int64, id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil && c.sessions[id] != nil {
		r.sessions.Delete(c.sessions[id])
		delete(c.sessions, id)
	}
}

// restored is [Clients.Restored].
func (r *Renewer) restored(each func(func(conn int64, id uint64, leaseMillis int64))) {
	type place struct {
		conn int64
		id   uint64
	}
	before := make(map[place]time.Time)
	r.mu.Lock()
	for _, c := range r.clients {
		for id, s := range c.sessions {
			before[place{c.id, id}] = s.since // the snapshot renews nothing
			r.sessions.Delete(s)
			delete(c.sessions, id)
		}
	}
	r.mu.Unlock()
	each(func(conn int64, id uint64, leaseMillis int64) {
		since, known := before[place{conn, id}]
		if !known {
			r.sessionAttached(conn, id, leaseMillis)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attach(r.clients[conn], conn, id, lease(leaseMillis), since)
	})
}

// post sends a message to a connection, if it is there.
func (r *Renewer) post(conn int64, m *push.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil {
		c.to.Post(m)
	}
}

// Len is the number of sessions that this node renews.
func (r *Renewer) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions.Len()
}

// Cuts is the number of connections that were closed since their sessions could not be renewed.
func (r *Renewer) Cuts() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
