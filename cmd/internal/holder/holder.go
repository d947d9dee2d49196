// Package holder is the client's side of one native lock: a session that lives with a connection, a place
// in line, and a hold that is proved again and again.
//
// It promises that [Holder.Keep] returns while the lock is still the owner's, unless the lock was taken
// away before its end by LOCK.BREAK or a closed session: when no node can be reached, the session cannot
// have ended yet. So a caller has time to stop what the lock protects. A node that dies costs no lock: the
// session is attached to another node, and the lock asked for again by the same owner.
//
// Here is the way of a lock; conn.go has the connection and which errors are worth another try.
package holder

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Lock is what is asked for.
type Lock struct {
	Name, Owner, Note string
	Shared            bool
	Limit, Permits    int           // 0: not a semaphore
	Wait              time.Duration // 0: not at all; negative: for ever
	TTL               time.Duration // what is left of the session when its node dies
	Delay             time.Duration // how long nobody gets the lock after a loss
}

// ErrNotGranted: the time to wait is over.
var ErrNotGranted = errors.New("not granted in time")

// Lost says that the lock is the owner's no more, or may soon not be.
type Lost struct {
	Why string
	// Until is when the session may end, where no node could be asked; zero: it has ended.
	Until time.Time
}

// Error is the reason.
func (l *Lost) Error() string { return l.Why }

// A Holder takes and keeps one lock. It is for one goroutine.
type Holder struct {
	servers *Servers
	lock    Lock
	next    int     // the server to try next
	reached bool    // a server has answered
	conn    *Conn   // nil: none
	former  []*Conn // closed once the session lives with conn: closing them earlier could end it
	session string  // "": none
	fence   int64   // 0: not held
	ends    time.Time
	// InLine, if not nil, is called each time when a place in line was taken, before the wait for the grant.
	InLine func(ctx context.Context, c *Conn)
}

// New makes a holder, which connects when it must.
func New(servers *Servers, lock Lock) *Holder { return &Holder{servers: servers, lock: lock} }

// Conn is the connection, nil if there is none.
func (h *Holder) Conn() *Conn { return h.conn }

// Fence is the hold's.
func (h *Holder) Fence() int64 { return h.fence }

// patience is for one exchange: a failover fits in, and several nodes fit into the TTL.
func (h *Holder) patience() time.Duration { return min(h.lock.TTL/5, 3*time.Second) }

// interval is between two proofs that the session lives.
func (h *Holder) interval() time.Duration { return h.lock.TTL / 4 }

// pause is between two tries.
const pause = 50 * time.Millisecond

// slack is what the cluster may be late to say that the wait is over.
const slack = 3 * time.Second

// Acquire waits for the lock until the time to wait is over, also while no server can be reached. Without a time to
// wait each server is tried once.
func (h *Holder) Acquire(ctx context.Context) error {
	until := time.Now().Add(h.lock.Wait)
	var why error // of the last try that was not cut short
	for {
		err := h.try(ctx, until)
		over := h.lock.Wait >= 0 && !time.Now().Before(until)
		if why == nil || !over {
			why = err
		}
		switch {
		case err == nil, isRefusal(err), errors.Is(err, ErrNotGranted):
			return err
		case errors.As(err, new(*Lost)):
			h.fence = 0 // granted and lost again: back into the line
		case ctx.Err() != nil:
			return ctx.Err()
		case h.lock.Wait == 0 && !h.reached:
			return err
		case over:
			return fmt.Errorf("%w: %w", ErrNotGranted, why)
		}
		sleep(ctx, pause)
	}
}

// try asks once, and proves what was granted. Behind until no server is looked for, and only what the cluster has to
// say of the wait is waited for.
func (h *Holder) try(ctx context.Context, until time.Time) error {
	search, found := ctx, context.CancelFunc(func() {})
	if h.lock.Wait > 0 {
		search, found = context.WithDeadline(ctx, until)
	}
	err := h.connect(search)
	found()
	if err != nil {
		return err
	}
	if h.lock.Wait >= 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, max(0, time.Until(until))+slack)
		defer end()
	}
	if err := h.ask(ctx, until); err != nil {
		return err
	}
	return h.confirm(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// connect makes sure of a connection with which the session lives; each server is tried once.
func (h *Holder) connect(ctx context.Context) error {
	if h.conn != nil {
		return nil
	}
	var failed error
	for range h.servers.Addrs {
		addr := h.servers.Addrs[h.next%len(h.servers.Addrs)]
		h.next++
		c, err := h.servers.Dial(ctx, addr, h.patience())
		if err == nil {
			h.reached = true
			err = h.bind(ctx, c)
		}
		switch {
		case err == nil:
			h.adopt(c)
			return nil
		case isRefusal(err), errors.As(err, new(*Lost)):
			return err
		}
		failed = Also(failed, err)
	}
	return failed
}

// adopt makes c the only connection.
func (h *Holder) adopt(c *Conn) {
	h.conn = c
	for _, former := range h.former {
		former.Close()
	}
	h.former = nil
}

// leave gives up on the connection, which stays open until the session lives with another.
func (h *Holder) leave() {
	if h.conn != nil {
		h.former = append(h.former, h.conn)
		h.conn = nil
	}
}

// bind makes the session live with c, or begins one.
func (h *Holder) bind(ctx context.Context, c *Conn) error {
	if h.session != "" {
		v, err := c.Do(ctx, "SESSION.ATTACH", h.session, "HEARTBEAT")
		switch {
		case err != nil:
			h.former = append(h.former, c) // the session may live with it
			return err
		case !v.IsNull():
			return nil
		case h.fence != 0:
			c.Close()
			return &Lost{Why: "the session ended"}
		}
		h.session = ""
	}
	begun := time.Now()
	v, err := c.Do(ctx, "SESSION.OPEN", "PX", millis(h.lock.TTL), "CONNECTION", "HEARTBEAT", "NAME", h.lock.Owner)
	if err != nil {
		c.Close()
		return err
	}
	h.session, h.ends = Text(v), begun.Add(h.lock.TTL)
	return nil
}

func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// Text is an integer or a string as a word.
func Text(v protocol.Value) string {
	if v.Kind == protocol.KindInteger {
		return strconv.FormatInt(v.Num, 10)
	}
	return v.Str
}

// confirm proves that the session lives and the lock is held, on whichever node, and notes for how long
// that is good. It tries until ctx ends.
func (h *Holder) confirm(ctx context.Context) error {
	for {
		err := h.connect(ctx)
		if err == nil {
			err = h.prove(ctx)
		}
		if err == nil || errors.As(err, new(*Lost)) {
			return err
		}
		h.leave()
		if ctx.Err() != nil {
			return err
		}
		sleep(ctx, pause)
	}
}

func (h *Holder) prove(ctx context.Context) error {
	begun := time.Now()
	vs, err := h.conn.Pipeline(ctx, []string{"SESSION.KEEPALIVE", h.session}, []string{
		"LOCK.CHECK", h.lock.Name,
		h.lock.Owner,
	})
	switch {
	case err != nil:
		return err
	case vs[0].IsError():
		return ErrorOf(vs[0])
	case vs[1].IsError():
		return ErrorOf(vs[1])
	case vs[0].IsNull():
		return &Lost{Why: h.reason("the session ended")}
	case vs[1].IsNull(), vs[1].Num != h.fence:
		return &Lost{Why: h.reason("it is no longer this owner's")}
	}
	h.ends = begun.Add(min(h.lock.TTL, time.Duration(vs[0].Num)*time.Millisecond))
	return nil
}

// reason is what a notice said, if one has come.
func (h *Holder) reason(otherwise string) string {
	for {
		select {
		case v := <-h.conn.pushes:
			if why, lost := h.isLoss(v); lost {
				return why
			}
		default:
			return otherwise
		}
	}
}

// isLoss reports whether v says that this hold is lost, and why.
func (h *Holder) isLoss(v protocol.Value) (why string, lost bool) {
	if e := v.Elems; len(e) > 5 && e[1].Str == "lost" && e[2].Str == h.lock.Name && e[3].Str == h.lock.Owner &&
		Text(e[4]) == strconv.FormatInt(h.fence, 10) {
		why = e[5].Str
		if len(e) > 7 { // by a command
			why = Forced(why, e[6].Str, e[7].Str)
		}
		return why, true
	}
	return "", false
}

// Forced is a loss by a command in words: the reason, who gave the command, and the text that LOCK.BREAK had.
func Forced(reason, text, by string) string {
	if by != "" {
		reason += " by " + by
	}
	if text != "" {
		reason += ": " + text
	}
	return reason
}

// Suspend has the node keep the session while the process sleeps, however long: no sign of life is demanded until
// Resume. Where that is not to be had, the session ends when the TTL has passed, and Resume tells.
func (h *Holder) Suspend(ctx context.Context) {
	if h.conn != nil {
		_, _ = h.conn.Do(ctx, "SESSION.ATTACH", h.session)
	}
}

// Resume proves the hold after the process slept, as long as it takes, at most the TTL: whatever the
// lock protects must not run meanwhile.
func (h *Holder) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.lock.TTL)
	defer cancel()
	if h.conn != nil {
		_, _ = h.conn.Do(ctx, "SESSION.ATTACH", h.session, "HEARTBEAT") // what comes of it is proved now
	}
	err := h.confirm(ctx)
	if err != nil && !errors.As(err, new(*Lost)) {
		err = &Lost{Why: "no node could be asked: " + err.Error()}
	}
	return err
}

// Keep keeps the lock until ctx ends, and then returns nil; or until the lock is lost, and then returns a
// [Lost]. A third of the TTL is left when no node could be reached.
func (h *Holder) Keep(ctx context.Context) error {
	tick := time.NewTimer(h.interval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case v := <-h.conn.pushes:
			if why, lost := h.isLoss(v); lost {
				return &Lost{Why: why}
			}
			continue
		case <-h.conn.down:
			h.leave()
		case <-tick.C:
		}
		limit, cancel := context.WithDeadline(ctx, h.ends.Add(-h.lock.TTL/3))
		err := h.confirm(limit)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(*Lost)):
			return err
		case err != nil:
			return &Lost{Why: "no node could be asked for too long: " + err.Error(), Until: h.ends}
		}
		tick.Reset(h.interval())
	}
}

// Release gives the lock back. It reports a loss that was not known yet.
func (h *Holder) Release(ctx context.Context) error {
	for again := false; ; again = true {
		err := h.connect(ctx)
		if err == nil {
			err = h.release(ctx)
		}
		switch {
		case err == nil, again && errors.As(err, new(*Lost)): // given back, and the reply was lost
			return nil
		case isRefusal(err), errors.As(err, new(*Lost)), ctx.Err() != nil:
			return err
		}
		h.leave()
		sleep(ctx, pause)
	}
}

func (h *Holder) release(ctx context.Context) error {
	vs, err := h.conn.Pipeline(ctx, []string{"LOCK.RELEASE", h.lock.Name, h.lock.Owner},
		[]string{"SESSION.CLOSE", h.session})
	switch {
	case err != nil:
		return err
	case vs[0].IsError():
		return ErrorOf(vs[0])
	case vs[0].IsNull():
		return &Lost{Why: h.reason("it was no longer this owner's when the command ended")}
	}
	return nil
}

// Close ends the connections, and with them the session.
func (h *Holder) Close() {
	h.leave()
	for _, c := range h.former {
		c.Close()
	}
	h.former, h.session, h.fence = nil, "", 0
}

// ask asks for the lock on the present connection, and waits in line until the time to wait is over.
func (h *Holder) ask(ctx context.Context, until time.Time) error {
	v, err := h.conn.Do(ctx, h.words(until)...)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), noSession):
		h.session = ""
		h.leave()
		return errors.New(err.Error())
	case err != nil:
		if !isRefusal(err) {
			h.leave()
		}
		return err
	case v.IsNull():
		return ErrNotGranted
	case v.Num != 0:
		h.fence = v.Num
		return nil
	}
	if h.InLine != nil {
		h.InLine(ctx, h.conn)
	}
	err = h.stand(ctx, until)
	if err != nil && !errors.Is(err, ErrNotGranted) {
		h.leave()
	}
	return err
}

// words are the request.
func (h *Holder) words(until time.Time) []string {
	l := h.lock
	words := []string{"LOCK.ACQUIRE", l.Name, l.Owner, "SESSION", h.session}
	if l.Shared {
		words = append(words, "SHARED")
	}
	if l.Limit > 0 {
		words = append(words, "LIMIT", strconv.Itoa(l.Limit), "PERMITS", strconv.Itoa(max(1, l.Permits)))
	}
	switch {
	case l.Wait < 0:
		words = append(words, "WAIT", "0", "NOTIFY")
	case l.Wait > 0:
		words = append(words, "WAIT", millis(max(time.Until(until), time.Millisecond)), "NOTIFY")
	}
	if l.Delay > 0 {
		words = append(words, "DELAY", millis(l.Delay))
	}
	if l.Note != "" {
		words = append(words, "NOTE", l.Note)
	}
	return words
}

// stand waits for the notice that the lock is granted. A node that hangs would never send it, so the node
// has to answer now and then.
func (h *Holder) stand(ctx context.Context, until time.Time) error {
	ping := time.NewTicker(h.interval())
	defer ping.Stop()
	for {
		select {
		case v := <-h.conn.pushes:
			e := v.Elems
			if len(e) < 4 || e[2].Str != h.lock.Name || e[3].Str != h.lock.Owner {
				continue
			}
			switch {
			case e[1].Str == "granted" && len(e) > 4:
				h.fence, _ = strconv.ParseInt(Text(e[4]), 10, 64)
				return nil
			case e[1].Str == "timeout" && h.lock.Wait > 0 && time.Until(until) < slack/10:
				return ErrNotGranted
			case e[1].Str == "timeout", e[1].Str == "failed":
				return errOutOfLine
			}
		case <-h.conn.down:
			return h.conn.err
		case <-ping.C:
			if _, err := h.conn.Do(ctx, "PING"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errOutOfLine: the place in line was lost before its time, so it is asked for again.
var errOutOfLine = errors.New("the place in line was lost")
