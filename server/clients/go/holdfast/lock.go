package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Option changes what a lock is, or what others see of it.
type Option func(*hold)

// Shared makes the lock one for readers: those who share it hold it together, and exclude who does not.
func Shared() Option { return func(h *hold) { h.words = append(h.words, "SHARED") } }

// Semaphore lets several hold the lock, until limit permits are taken. All clients have to say the same limit.
func Semaphore(limit, permits int) Option {
	return func(h *hold) {
		h.words = append(h.words, "LIMIT", strconv.Itoa(limit), "PERMITS", strconv.Itoa(permits))
	}
}

// Note is shown to everybody who looks at the lock, up to 1024 bytes. Leaders tell their address so.
func Note(text string) Option { return func(h *hold) { h.words = append(h.words, "NOTE", text) } }

// Queued has f called, before the wait, each time when others have the lock that was asked for. Owner is by what
// [Client.Inspect] knows this waiter.
func Queued(f func(owner string)) Option { return func(h *hold) { h.queued = f } }

// Delay is how long nobody is granted the lock after it was lost. A release does not delay. At most a day.
func Delay(d time.Duration) Option {
	return func(h *hold) { h.words = append(h.words, "DELAY", millis(d)) }
}

// Reentrant has calls of the same client with the same owner share one hold, which ends with the last Unlock. Without
// it each call excludes all others, also of the same goroutine. The owner is a name within this client. All calls say
// the same other options.
func Reentrant(owner string) Option {
	return func(h *hold) { h.key = strings.Join(append(slices.Clone(h.names), owner), "\x00") }
}

// hold is what the cluster knows of one or several handles of a lock.
type hold struct {
	c     *Client
	names []string
	owner string   // unique, so that a repeated command never concerns another hold
	key   string   // of holds that are reentrant: names and owner; "": not reentrant
	words []string // the options of LOCK.ACQUIRE

	queued func(owner string) // nil: not told

	ctx    context.Context
	cancel context.CancelCauseFunc

	// Guarded by c.mu:
	state    lockState
	fence    int64
	handles  int
	session  string        // that the lock was asked for in last; "": never, or refused
	askAgain bool          // the place in line was lost
	loss     error         // of a hold that is lost, also while it is released
	changed  chan struct{} // closed and replaced at each change
}

type lockState int

const (
	stateWaiting lockState = iota
	stateHeld
	stateLost
	stateReleased // also while that is on its way
)

// set changes the state and wakes who waits for that. c.mu is held.
func (h *hold) set(s lockState) {
	h.state = s
	close(h.changed)
	h.changed = make(chan struct{})
	if s >= stateLost {
		delete(h.c.holds, h.owner)
		if h.c.reentrant[h.key] == h {
			delete(h.c.reentrant, h.key)
		}
	}
}

// Lock is a lock that was granted.
type Lock struct {
	h        *hold
	released atomic.Bool
}

// Lock waits in line for a lock until ctx ends. The place is kept while nodes die. When ctx ends, the place is given
// up, and a grant that comes nevertheless is given back. The error is a [RefusedError], [ErrClosed] or the cause of ctx
// joined with what the nodes said last.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, true, []string{name}, options)
}

// TryLock takes a lock if nobody holds it or waits for it; else the error is [ErrNotGranted]. If no node can be
// reached, each is tried once.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, false, []string{name}, options)
}

// LockAll is Lock for up to 128 locks, which are granted together, with one fence. The loss of one is the loss of all.
func (c *Client) LockAll(ctx context.Context, names []string, options ...Option) (*Lock, error) {
	return c.lock(ctx, true, names, options)
}

var counter atomic.Uint64

func (c *Client) lock(ctx context.Context, wait bool, names []string, options []Option) (*Lock, error) {
	h := &hold{
		c: c, names: names, owner: c.id + ":" + strconv.FormatUint(counter.Add(1), 10), handles: 1,
		changed: make(chan struct{}),
	}
	for _, o := range options {
		o(h)
	}
	if len(names) == 0 {
		return nil, errors.New("holdfast: no names of locks")
	}
	if held, err := c.enter(ctx, h); held != nil || err != nil {
		return held, err
	}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := c.acquire(ctx, h, wait); err != nil {
		c.abandon(h)
		return nil, err
	}
	return &Lock{h: h}, nil
}

// enter adds h to the client's holds. If h is reentrant and its owner has the lock already, it returns a further handle
// of that hold instead; if the owner waits for the lock or releases it, it waits for the outcome of that.
func (c *Client) enter(ctx context.Context, h *hold) (*Lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		before := c.reentrant[h.key]
		if before == nil {
			c.holds[h.owner] = h
			if h.key != "" {
				c.reentrant[h.key] = h
			}
			return nil, nil
		}
		if before.state == stateHeld {
			before.handles++
			return &Lock{h: before}, nil
		}
		changed := before.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// acquire asks for the lock until it is granted or refused. If the cluster has refused it, h.session is empty.
func (c *Client) acquire(ctx context.Context, h *hold, wait bool) error {
	for {
		cn, session, err := c.await(ctx, !wait)
		if err != nil {
			return err
		}
		h.setSession(session)
		v, err := cn.await(ctx, request{words: h.acquireWords(session, wait)}, h.replied)
		switch {
		case isReply(err, "NOSESSION"):
			c.endSession(session)
			c.awaitChange(ctx, cn)
		case c.mayRetry(ctx, cn, err), ctx.Err() != nil:
		case err != nil || v.isNull():
			h.setSession("")
			return cmp.Or(err, ErrNotGranted)
		default:
			if v.num == 0 && h.queued != nil {
				h.queued(h.owner)
			}
			if h.awaitGrant(ctx, cn) && ctx.Err() == nil {
				return nil
			}
		}
	}
}

// setSession notes in which session the lock is asked for now.
func (h *hold) setSession(session string) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.askAgain, h.session = false, session
}

func (h *hold) acquireWords(session string, wait bool) []string {
	words := []string{"LOCK.ACQUIRE", h.names[0]}
	if len(h.names) > 1 {
		words = h.forAll("LOCK.ACQUIREALL")
	}
	words = append(append(words, h.owner, "SESSION", session), h.words...)
	if wait {
		words = append(words, "WAIT", "0", "NOTIFY")
	}
	return words
}

func (h *hold) forAll(command string) []string {
	return append([]string{command, strconv.Itoa(len(h.names))}, h.names...)
}

// replied notes a grant at once, by the goroutine that reads.
func (h *hold) replied(v value) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.grant(v.num)
}

// grant notes a grant; 0 is none. One in a session that was given up does not count. c.mu is held.
func (h *hold) grant(fence int64) {
	if fence > 0 && h.state == stateWaiting && h.session == h.c.session {
		h.fence = fence
		h.set(stateHeld)
	}
}

// awaitGrant waits until the lock was granted, and reports false if it must be asked for again, or ctx has ended.
func (h *hold) awaitGrant(ctx context.Context, cn *conn) bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for h.state == stateWaiting && !h.askAgain {
		changed := h.changed
		h.c.mu.Unlock()
		select {
		case <-changed:
		case <-cn.left:
			h.c.awaitChange(ctx, cn)
		case <-cn.down:
			h.c.awaitChange(ctx, cn)
		case <-ctx.Done():
		}
		h.c.mu.Lock()
		if h.c.conn != cn || ctx.Err() != nil {
			break
		}
	}
	return h.state != stateWaiting
}

// abandon ends what was not granted in time: a place in line is given up, and a grant given back.
func (c *Client) abandon(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.state == stateLost {
		return
	}
	asked := h.session != ""
	h.set(stateReleased)
	h.cancel(ErrNotGranted)
	if asked {
		c.giveBackLater(h)
	}
}

// giveBackLater has a goroutine tell the cluster that nobody wants the lock any more. c.mu is held.
func (c *Client) giveBackLater(h *hold) {
	if c.ctx.Err() == nil {
		c.ended.Go(func() { c.giveBack(h) })
	}
}

// giveBack tells the cluster that nobody wants the lock any more, unless the session has ended, and the lock with it.
func (c *Client) giveBack(h *hold) {
	for {
		cn, session, err := c.await(c.ctx, false)
		if errors.As(err, new(*RefusedError)) {
			continue
		}
		if err != nil || session != h.session {
			return
		}
		_, err = cn.do(c.ctx, "LOCK.CANCEL", h.names[0], h.owner)
		if err == nil {
			_, err = cn.do(c.ctx, h.releaseWords()...)
		}
		if !c.mayRetry(c.ctx, cn, err) {
			return
		}
	}
}

func (h *hold) releaseWords() []string {
	if len(h.names) > 1 {
		return append(h.forAll("LOCK.RELEASEALL"), h.owner)
	}
	return []string{"LOCK.RELEASE", h.names[0], h.owner, "ALL"}
}

// lose ends a hold. c.mu is held.
func (h *hold) lose(err error) {
	if lost := new(LostError); errors.As(err, &lost) {
		of := *lost
		of.Lock, of.Fence = h.names[0], h.fence
		err = &of
		if h.state == stateHeld {
			go h.c.config.Logger.Warn(err.Error()) // a handler may block, or use the client
		}
	}
	switch h.state {
	case stateHeld:
		h.loss = err
		h.set(stateLost)
		h.cancel(err)
		if len(h.names) > 1 {
			h.c.giveBackLater(h)
		}
	case stateReleased:
		h.loss = err
	}
}

// Fence returns the number of this hold, which is larger than that of every hold before. It goes with every write to a
// resource that refuses smaller ones; see also [Client.Pass].
func (l *Lock) Fence() int64 { return l.h.fence }

// Owner is by what [Client.Inspect] and LOCK.CHECK know this hold. No other lock has it.
func (l *Lock) Owner() string { return l.h.owner }

// Context ends when the lock is lost or released. It has the values of the context that the lock was asked for with.
// After a loss its [context.Cause] is a [LostError].
func (l *Lock) Context() context.Context { return l.h.ctx }

// Unlock releases the lock. The error is a [LostError] if it was lost before: then others may have held it meanwhile.
// If ctx ends first, the lock is released in the background. A second call does nothing.
func (l *Lock) Unlock(ctx context.Context) error {
	h := l.h
	h.c.mu.Lock()
	if h.state == stateLost {
		defer h.c.mu.Unlock()
		return h.loss
	}
	if l.released.Swap(true) {
		h.c.mu.Unlock()
		return nil
	}
	if h.handles--; h.handles > 0 {
		h.c.mu.Unlock()
		return nil
	}
	h.state = stateReleased // set below, once it is: whoever enters meanwhile has to wait
	h.c.mu.Unlock()
	h.cancel(nil)
	err := h.release(ctx)
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.set(stateReleased)
	if err != nil && !errors.As(err, new(*LostError)) && !errors.As(err, new(*RefusedError)) {
		h.c.giveBackLater(h)
	}
	return err
}

// release gives the lock back. A release whose reply was lost counts if the lock is not held any more.
func (h *hold) release(ctx context.Context) error {
	for again := false; ; again = true {
		cn, session, err := h.c.await(ctx, false)
		if err != nil {
			return err
		}
		lost := session != h.session
		if !lost {
			var v value
			if v, err = cn.do(ctx, h.releaseWords()...); h.c.mayRetry(ctx, cn, err) {
				continue
			}
			if err != nil {
				return err
			}
			lost = v.isNull() || len(h.names) > 1 && v.num < int64(len(h.names))
		}
		if lost && !again {
			return h.reason()
		}
		return nil
	}
}

// reason returns why the lock was lost.
func (h *hold) reason() error {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.loss == nil {
		h.lose(&LostError{Reason: "unknown"})
	}
	return h.loss
}

// pushed handles what a node sends without being asked.
func (c *Client) pushed(cn *conn, v value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := v.elems
	if len(e) >= 3 && e[0].text == "message" {
		for w := range c.watchers[e[1].text] {
			w.wake()
		}
		return
	}
	if len(e) < 4 || e[0].text != "lock" {
		return
	}
	if h := c.holds[e[3].text]; h != nil && slices.Contains(h.names, e[2].text) {
		h.pushed(cn, e[1].text, e[4:])
	}
}

// pushed handles a notice: "granted" and the fence, "timeout", "failed" and an error, or "lost", the fence, the reason,
// the text of LOCK.BREAK and who broke the lock. c.mu is held.
func (h *hold) pushed(cn *conn, kind string, words []value) {
	switch {
	case kind == "granted" && len(words) > 0:
		h.grant(words[0].num)
	case (kind == "timeout" || kind == "failed") && cn == h.c.conn && h.state == stateWaiting:
		h.askAgain = true
		h.set(stateWaiting)
	case kind == "lost" && len(words) > 1 && words[0].num == h.fence:
		lost := &LostError{Reason: words[1].text}
		if len(words) > 3 {
			lost.Text, lost.By = words[2].text, words[3].text
		}
		h.lose(lost)
	}
}
