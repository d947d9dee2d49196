package sessions

import (
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/server/push"
)

// Client is a connection. Any goroutine may call its methods, which must not block or call the renewer.
type Client interface {
	// SetLease sets the shortest lease of the connection's sessions. The connection must be closed once the client has
	// been silent for that long, and not before.
	SetLease(shortest time.Duration)
	// Heard returns when the client last sent something. It is called only after [Renewer.Demand].
	Heard() time.Time
	// Post sends a message without waiting.
	Post(m *push.Message)
	// Cut closes the connection.
	Cut(why string)
}

// Renewer renews the sessions of this node's connections, and closes connections whose sessions it could not renew.
type Renewer struct {
	cluster    *Cluster
	departures *departures
	// wakeRenewer and wakeCutter end the sleep of Run's goroutines.
	wakeRenewer, wakeCutter chan struct{}

	mu      sync.Mutex
	clients map[int64]*client
	// sessions are ordered by lease, the shortest first.
	sessions *btree.BTreeG[*session]
	expected map[*session]struct{}
	// silent are the connections whose clients must send something, ordered by the time of the next check.
	silent *btree.BTreeG[*client]
	// renewed is the start of the last acknowledged renewal.
	renewed time.Time
	// endLater are connections that were closed by this node, and whose sessions may still be attached elsewhere.
	endLater []cut
	cuts     uint64
	// stopping is set once this node stops.
	stopping bool
}

// client is a connection with its sessions.
type client struct {
	id       int64
	to       Client
	sessions map[uint64]*session // by id
	// expected are sessions whose command is not in this node's log yet. The same session may be in sessions already.
	expected []*session
	// lastAsked is the start of the last command that may have made or attached a session, zero if there was none.
	lastAsked time.Time
	// shortest is the shortest lease so far, 0 if there was none.
	shortest time.Duration
	// cut is set once this node closes the connection. lease is then the longest lease of its sessions.
	cut   bool
	lease time.Duration
	// demanded is set if the client must send something within the shortest lease of its sessions. checkAt is the time of
	// the next check, zero if the client is not in Renewer.silent.
	demanded bool
	checkAt  time.Time
}

// session is a session of a connection. It is immutable.
type session struct {
	id    uint64 // 0: not in the log yet
	conn  int64
	lease time.Duration
	// since is an instant at which the session had its whole lease.
	since time.Time
	// number is the number of the batch of an expected session.
	number uint64
}

// cut is a connection that this node closed, and the time at which to end its sessions.
type cut struct {
	conn int64
	at   time.Time
}

// MinLease is the shortest lease of a session that is attached to a connection.
const MinLease = time.Second

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

// Enter adds a connection that may get sessions or locks. It must be called before the connection's first command of
// that kind is proposed.
func (r *Renewer) Enter(conn int64, to Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[conn] = &client{id: conn, to: to, sessions: make(map[uint64]*session)}
	if len(r.clients) == 1 {
		r.cluster.SubscribeSessions(true)
	}
}

// Leave removes a closed connection. If ended is true, its sessions end. If it is false, this node is stopping, and the
// sessions keep the rest of their leases.
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
	r.forgetSessions(c)
	r.stopping = r.stopping || !ended
	switch {
	case !ended:
	case c.cut:
		r.endLater = append(r.endLater, cut{conn, time.Now().Add(c.lease)})
		wake(r.wakeRenewer)
	case some:
		r.departures.addConn(conn)
	}
}

// Vanished is called before [Renewer.Leave] when a connection is closed because its client was silent for the shortest
// lease. A client behind a partition may rely on a session with a longer lease, so that such a session keeps the rest
// of it.
func (r *Renewer) Vanished(conn int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil && !c.cut && len(c.sessions)+len(c.expected) > 0 {
		r.abandonSessions(c, c.shortest)
	}
}

// abandonSessions detaches the sessions of a connection that is being closed. They end once their longest lease, less
// the time that has passed, is over. The caller holds r.mu.
func (r *Renewer) abandonSessions(c *client, passed time.Duration) {
	c.cut = true
	for _, s := range c.sessions {
		c.lease = max(c.lease, s.lease)
	}
	for _, s := range c.expected {
		c.lease = max(c.lease, s.lease)
	}
	c.lease = max(c.lease-passed, 0)
	r.forgetSessions(c)
}

// Sessions returns the number of sessions that are, or may be, attached to a connection.
func (r *Renewer) Sessions(conn int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil {
		return 0
	}
	return len(c.sessions) + len(c.expected)
}

// forgetSessions removes the sessions of a connection. The caller holds r.mu.
func (r *Renewer) forgetSessions(c *client) {
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

// Ask records the start of a command that may make or attach a session of the connection: the session's lease may run
// from then on, however long the command takes.
func (r *Renewer) Ask(conn int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil {
		c.lastAsked = now
	}
}

// Expect records that the batch of that number, proposed at began, made or attached a session of this connection, or
// may have. Until the batch is in this node's log, the session is renewed as one with that lease. 0 is an unknown
// lease.
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
	s := &session{conn: conn, lease: max(lease, MinLease), since: began, number: number}
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

// removeExpected removes an expected session that is no longer in the tree. The caller holds r.mu.
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
	if c != nil && !c.lastAsked.IsZero() {
		since = c.lastAsked
	}
	r.attach(c, conn, id, lease(leaseMillis), since)
}

// attach adds a session to the connection c, which is nil if it has closed. The caller holds r.mu.
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
		// Not in the next round: the session may have expired, and a renewal that succeeds now would hide that.
		r.cutOff(conn)
		return
	}
	r.expectSign(c, lease)
	r.wakeBoth()
}

// shorten lowers the connection's shortest lease. The caller holds r.mu.
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

// sessionDetached removes a session that an applied entry detached from its connection.
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

// post sends a message to a connection that is still open.
func (r *Renewer) post(conn int64, m *push.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[conn]; c != nil {
		c.to.Post(m)
	}
}

// Len returns the number of sessions that this node renews.
func (r *Renewer) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions.Len()
}

// Cuts returns the number of connections that were closed because their sessions could not be renewed.
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
