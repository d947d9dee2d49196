// Package holdfast is the client of Holdfast's native locks: a fair queue without polling, a fencing token with every
// grant, and a context that ends when the lock is lost.
//
//	client, err := holdfast.New(holdfast.Config{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"}})
//	lock, err := client.Lock(ctx, "nightly")   // waits in line until ctx ends
//	defer lock.Unlock(context.Background())
//	err = work(lock.Context(), lock.Fence())   // context.Cause(lock.Context()) is a *LostError after a loss
//
// A [Client] has one session for all its locks. The session outlives the node that the client is connected to: the
// client attaches it to another node, and every lock and every place in line is kept. The locks of a process that dies
// or freezes are free after [Config.TTL].
//
// The contract that this package keeps is server/clients/CONTRACT.md.
//
// The package is a module of its own: who uses it gets none of the server's requirements. The server's module requires
// it, for `holdfast lock`, and replaces it by this folder, as etcd and Consul do with their clients. So a clone builds
// with what it has, and is tested with it. What that costs is `go install` of the server by a version, which the
// go command refuses to a module that replaces another. As a package of the server's module it would have the same
// import path, but raise its users' versions of everything that the server requires. A workspace would leave
// `go mod tidy` without the package.
package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Config is what a client needs to know. Only Addrs is required.
type Config struct {
	// Addrs are the nodes, as host:port. With several a client outlives the death of its node.
	Addrs []string
	// User and Password log in; without a user the password is that of Redis's default user.
	User, Password string
	// Credentials, if set, is asked for user and password at each connection, so that they can change.
	Credentials func(context.Context) (user, password string, err error)
	// TLS is nil for connections without TLS. An empty ServerName is the host of the address.
	TLS *tls.Config
	// DB is the number of the database; lock names are those of one database.
	DB int
	// Name is by which nodes, `holdfast locks` and the web page know the client. Default: the program and its process
	// number.
	Name string
	// TTL is how long locks stay held when this process dies or freezes, or no node can be reached. At least 1 s;
	// default 10 s. Below 5 s it is hardly longer than the failover of a cluster.
	TTL time.Duration
	// Dial, if set, opens connections instead of a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger gets warnings of lost locks and of each time when no node can be used, and changes of the node at level
	// debug. Default: none.
	Logger *slog.Logger
}

const (
	defaultTTL = 10 * time.Second
	minTTL     = time.Second
)

// Pauses between two rounds over all nodes, or two tries of a command that a node could not execute.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// proveAtOnce is how many holds are proved at the same time.
const proveAtOnce = 128

// Client takes native locks. It connects at the first use. Its methods may be called by several goroutines.
type Client struct {
	config Config
	id     string // prefix of the owners of this client
	ctx    context.Context
	end    context.CancelFunc
	start  sync.Once
	ended  sync.WaitGroup

	mu        sync.Mutex
	changed   chan struct{}              // closed and replaced when conn changes or a round over all nodes fails
	conn      *conn                      // the connection that the session is attached to, nil while there is none
	former    []*conn                    // to be closed: see retire
	next      int                        // index of the address to dial next
	rounds    int                        // how many rounds over all nodes have failed
	roundErr  error                      // of the last failed round
	session   string                     // "": none
	goodUntil time.Time                  // the session cannot end before, unless a command ends it
	alarm     *time.Timer                // fires when a third of the TTL is left
	suspended bool                       // the alarm says nothing: see Suspend
	holds     map[string]*hold           // asked for or held, by owner
	reentrant map[string]*hold           // those of them that are, by hold.key
	watchers  map[string]map[*watch]bool // by channel
	observer  *Client                    // watches for this client; nil: none yet
}

// New returns a client. It is closed by [Client.Close].
func New(config Config) (*Client, error) {
	config.TTL = cmp.Or(config.TTL, defaultTTL)
	if len(config.Addrs) == 0 {
		return nil, errors.New("holdfast: no addresses of nodes")
	}
	for _, addr := range config.Addrs {
		if err := checkAddr(addr); err != nil && config.Dial == nil {
			return nil, fmt.Errorf("holdfast: %w", err)
		}
	}
	if config.TTL < minTTL {
		return nil, fmt.Errorf("holdfast: TTL %v: at least %v", config.TTL, minTTL)
	}
	if config.Name == "" {
		config.Name = filepath.Base(os.Args[0]) + ":" + strconv.Itoa(os.Getpid())
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		config: config, id: newID(), changed: make(chan struct{}),
		holds: map[string]*hold{}, reentrant: map[string]*hold{}, watchers: map[string]map[*watch]bool{},
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.alarm = time.AfterFunc(time.Hour, c.expire)
	c.alarm.Stop()
	return c, nil
}

// checkAddr returns an error unless addr is host:port, with a port of 1 to 65535.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address %s: port %q is not 1 to 65535", addr, port)
	}
	return nil
}

// newID returns the prefix of a client's owners: where it runs, and a part that no other has.
func newID() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.200s:%d:%s", host, os.Getpid(), rand.Text())
}

// Close releases all locks by closing the session, and ends the contexts of those that are held with ErrClosed. It
// does not wait for a node longer than a fifth of the TTL: then the locks are free after the TTL.
func (c *Client) Close() error {
	c.mu.Lock()
	cn, session, observer := c.conn, c.session, c.observer
	c.end()
	c.loseAll(ErrClosed)
	c.mu.Unlock()
	if observer != nil {
		_ = observer.Close()
	}
	var err error
	if cn != nil && session != "" {
		_, err = cn.do(context.Background(), "SESSION.CLOSE", session)
	}
	c.ended.Wait()
	c.alarm.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = ""
	c.setConn(nil)
	c.closeFormer()
	return err
}

// patience is the longest time for one exchange: a TTL has time for several nodes.
func (c *Client) patience() time.Duration { return min(c.config.TTL/5, 3*time.Second) }

// heartbeat is the interval between two signs of life.
func (c *Client) heartbeat() time.Duration { return c.config.TTL / 4 }

// run keeps the session attached to some node until the client is closed.
func (c *Client) run() {
	defer c.ended.Done()
	pause := firstPause
	for c.ctx.Err() == nil {
		cn, err := c.connect()
		if err != nil {
			c.noteFailedRound(err)
			sleep(c.ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = firstPause
		c.keep(cn)
		c.mu.Lock()
		c.retire(cn)
		c.setConn(nil)
		c.mu.Unlock()
	}
}

// retire closes a connection that is used no more, or once the session is attached to another if it may be attached to
// this one: a node ends the sessions of a connection that closes. c.mu is held.
func (c *Client) retire(cn *conn) {
	if c.session == "" {
		cn.close()
		return
	}
	c.former = append(c.former, cn)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c *Client) noteFailedRound(err error) {
	c.mu.Lock()
	level := slog.LevelDebug
	if c.roundErr == nil {
		level = slog.LevelWarn
	}
	c.rounds++
	c.roundErr = err
	c.notify()
	c.mu.Unlock()
	c.config.Logger.Log(c.ctx, level, "holdfast: no node can be used", "error", err)
}

// setConn replaces conn and tells those who wait for one. c.mu is held.
func (c *Client) setConn(cn *conn) {
	c.conn = cn
	c.notify()
}

// notify wakes all who wait for a connection. c.mu is held.
func (c *Client) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// connect tries each node once, and attaches the session to the first that answers.
func (c *Client) connect() (*conn, error) {
	var failed error
	for range c.config.Addrs {
		addr := c.config.Addrs[c.next%len(c.config.Addrs)]
		c.next++
		cn, err := c.dial(c.ctx, addr, c.pushed)
		if err == nil {
			if err = c.attach(cn); err == nil {
				return cn, nil
			}
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err) // in one line, for logs
		}
		failed = err
	}
	return nil, failed
}

// attach attaches the session to cn, or opens one, proves the locks that are held, and makes cn the client's
// connection.
func (c *Client) attach(cn *conn) error {
	session, err := c.open(cn)
	if err == nil {
		err = c.prove(cn)
	}
	if err == nil {
		err = c.subscribe(cn)
	}
	c.mu.Lock()
	if err == nil && c.session != session {
		err = fmt.Errorf("%s: %w", cn.addr, errSession)
	}
	if err != nil {
		c.retire(cn)
		c.mu.Unlock()
		return err
	}
	c.closeFormer()
	c.roundErr = nil
	c.setConn(cn)
	c.mu.Unlock()
	c.config.Logger.Debug("holdfast: connected", "node", cn.addr, "session", session)
	return nil
}

// closeFormer closes the connections that the session was attached to before. c.mu is held.
func (c *Client) closeFormer() {
	for _, cn := range c.former {
		cn.close()
	}
	c.former = nil
}

var errSession = errors.New("the session ended")

// open attaches the session to cn and returns its id. Where there is none, or none any more, it opens one.
func (c *Client) open(cn *conn) (string, error) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != "" {
		v, err := cn.do(c.ctx, "SESSION.ATTACH", session, "HEARTBEAT")
		if err != nil && !isReply(err, "NOSESSION") {
			return "", err
		}
		if err == nil && !v.isNull() {
			return session, c.keepAlive(cn, session)
		}
		c.endSession(session)
	}
	begun := time.Now()
	v, err := cn.do(c.ctx, "SESSION.OPEN", "PX", millis(c.config.TTL), "CONNECTION", "HEARTBEAT", "NAME", c.config.Name)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = v.word()
	c.setGoodUntil(begun.Add(c.config.TTL))
	return c.session, nil
}

// millis returns d in milliseconds, rounded up.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// keepAlive renews the session.
func (c *Client) keepAlive(cn *conn, session string) error {
	begun := time.Now()
	v, err := cn.do(c.ctx, "SESSION.KEEPALIVE", session)
	switch {
	case isReply(err, "NOSESSION"), err == nil && v.isNull():
		c.endSession(session)
		return fmt.Errorf("%s: %w", cn.addr, errSession)
	case err != nil:
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == session {
		c.setGoodUntil(begun.Add(min(c.config.TTL, time.Duration(v.num)*time.Millisecond)))
	}
	return nil
}

// setGoodUntil notes until when the session is sure to exist, and sets the alarm. c.mu is held.
func (c *Client) setGoodUntil(t time.Time) {
	c.goodUntil = t
	c.alarm.Reset(time.Until(t) - c.config.TTL/3)
}

// expire ends all holds with a third of the TTL left, if no node could be reached in time to renew the session. The
// session is given up: its end is only a matter of time.
func (c *Client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == "" || c.suspended || time.Until(c.goodUntil) > c.config.TTL/3 {
		return
	}
	reason := "no node could be reached"
	if c.roundErr != nil {
		reason += ": " + c.roundErr.Error()
	}
	c.giveUpSession(&LostError{Reason: reason, Until: c.goodUntil})
}

// endSession notes that a session has ended, and with it all holds.
func (c *Client) endSession(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == session {
		c.giveUpSession(&LostError{Reason: "session"})
	}
}

// giveUpSession ends all holds with err, and has another session opened. c.mu is held.
func (c *Client) giveUpSession(err error) {
	c.session = ""
	c.loseAll(err)
	c.closeFormer()
	if c.conn != nil {
		c.conn.leave()
	}
}

// loseAll ends all holds. c.mu is held.
func (c *Client) loseAll(err error) {
	for _, h := range c.holds {
		h.lose(err)
	}
}

// prove asks for each hold whether it is still held: the notice of its loss may have gone to a former connection.
func (c *Client) prove(cn *conn) error {
	c.mu.Lock()
	var held []*hold
	for _, h := range c.holds {
		if h.state == stateHeld {
			held = append(held, h)
		}
	}
	c.mu.Unlock()
	for batch := range slices.Chunk(held, proveAtOnce) {
		var asked sync.WaitGroup
		var failed error
		for _, h := range batch {
			for _, name := range h.names {
				asked.Go(func() {
					v, err := cn.do(c.ctx, "LOCK.CHECK", name, h.owner)
					c.mu.Lock()
					defer c.mu.Unlock()
					if err != nil {
						failed = err
					} else if v.num != h.fence {
						h.lose(&LostError{Reason: "unknown"})
					}
				})
			}
		}
		if asked.Wait(); failed != nil {
			return failed
		}
	}
	return nil
}

// keep sends signs of life until another node must be looked for.
func (c *Client) keep(cn *conn) {
	tick := time.NewTicker(c.heartbeat())
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-cn.down:
			return
		case <-cn.left:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		session := c.session
		c.mu.Unlock()
		if c.keepAlive(cn, session) != nil {
			return
		}
	}
}

// await returns the connection that the session is attached to. It waits for one until ctx ends; if once, only until a
// round over all nodes has failed. A round that failed because a node refused the client ends the wait, too.
func (c *Client) await(ctx context.Context, once bool) (cn *conn, session string, err error) {
	c.start.Do(func() {
		c.ended.Add(1)
		go c.run()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for rounds := c.rounds; ; {
		switch {
		case c.ctx.Err() != nil:
			return nil, "", ErrClosed
		case ctx.Err() != nil:
			return nil, "", c.why(ctx)
		case c.conn != nil && c.session != "":
			return c.conn, c.session, nil
		case c.rounds > rounds && (once || errors.As(c.roundErr, new(*RefusedError))):
			return nil, "", c.roundErr
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
}

// why returns the error of a wait that ctx ended: its cause, and, while there is no connection, what the nodes said
// last. c.mu is held.
func (c *Client) why(ctx context.Context) error {
	switch {
	case c.conn != nil && c.roundErr == nil:
		return context.Cause(ctx)
	case c.roundErr == nil:
		return fmt.Errorf("%w: no node has answered", context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), c.roundErr)
}

// Suspend has the node keep the session, however long, while this process is stopped on purpose, as from a terminal: no
// sign of life is demanded and no loss told before resume. That holds as long as the connection lasts. resume returns
// when each lock is proved or lost; what cannot be proved when ctx ends is lost. What the locks protect must not go on
// before.
func (c *Client) Suspend(ctx context.Context) (resume func(context.Context)) {
	cn, session, err := c.await(ctx, false)
	if err != nil {
		return func(context.Context) {}
	}
	c.setSuspended(true)
	_, _ = cn.do(ctx, "SESSION.ATTACH", session) // if it has no effect, the session ends, and resume tells
	return func(ctx context.Context) {
		_, _ = c.exchange(ctx, func(cn *conn) (v value, err error) {
			_, _ = cn.do(ctx, "SESSION.ATTACH", session, "HEARTBEAT") // what comes of it is proved now
			if err = c.keepAlive(cn, session); err == nil {
				err = c.prove(cn)
			}
			return v, err
		})
		c.setSuspended(false)
		c.expire()
	}
}

func (c *Client) setSuspended(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = yes
}

// do executes a command that may be executed twice: it is repeated, at other nodes too, until ctx ends.
func (c *Client) do(ctx context.Context, words ...string) (value, error) {
	return c.exchange(ctx, func(cn *conn) (value, error) { return cn.do(ctx, words...) })
}

// exchange calls do with the client's connection until that succeeds or cannot succeed.
func (c *Client) exchange(ctx context.Context, do func(*conn) (value, error)) (value, error) {
	for {
		cn, _, err := c.await(ctx, false)
		if err != nil {
			return value{}, err
		}
		v, err := do(cn)
		if !c.mayRetry(ctx, cn, err) {
			return v, err
		}
	}
}

// mayRetry reports whether a command that ended with err may succeed at another try, and waits for the moment of that.
func (c *Client) mayRetry(ctx context.Context, cn *conn, err error) bool {
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case errors.Is(err, errConnection):
		c.awaitChange(ctx, cn)
		return true
	case isReply(err, "CLUSTERDOWN", "LOADING", "MASTERDOWN"):
		cn.leave()
		c.awaitChange(ctx, cn)
	case !errors.As(err, new(*transientError)):
		return false
	}
	sleep(ctx, firstPause)
	return true
}

// awaitChange returns when cn is no longer the client's connection.
func (c *Client) awaitChange(ctx context.Context, cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.conn == cn && ctx.Err() == nil && c.ctx.Err() == nil {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		c.mu.Lock()
	}
}
