package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
)

// holder is the owner of the filler locks, as long as a token.
const holder = "0123456789abcdef"

// fillLocks acquires n locks for an hour, in the target's form.
func fillLocks(ctx context.Context, e Env, n int) error {
	if e.Target.Form != target.Native {
		return fill(ctx, e, n, lockKey)
	}
	c, err := writer(ctx, e)
	if err != nil {
		return err
	}
	defer c.Close()
	return batches(ctx, n, func(i int) { c.Append("lock.acquire", lockKey(i), holder, "px", "3600000") }, c)
}

// keepers is the number of connections that keep all sessions alive.
const keepers = 16

// sessions opens sessions with a lock each, and renews them by SESSION.KEEPALIVE every third of their lease.
func sessions(ctx context.Context, e Env) (*Figures, error) {
	before, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	all, err := openSessions(ctx, e)
	if err != nil {
		return nil, err
	}
	keepCtx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var kept, missed atomic.Int64
	errs := make([]error, len(all))
	for i, part := range all {
		group.Go(func() { errs[i] = part.keep(keepCtx, e.Client.TTL/3, &kept, &missed) })
	}
	after, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	kept.Store(0)
	f, err := atRest(ctx, e)
	stop()
	group.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	f.merge(map[string]float64{
		"sessions": float64(e.Sizes.Sessions), "bytes_per_session": grown(before, after) / float64(e.Sizes.Sessions),
		"keepalives_per_second": float64(kept.Load()) / e.Measure.Seconds(), "sessions_lost": float64(missed.Load()),
	})
	return f, flush(ctx, e)
}

// atRest measures the servers' usage while only keepers are active.
func atRest(ctx context.Context, e Env) (*Figures, error) {
	m := newMeter(e)
	m.begin()
	if err := rest(ctx, e.Measure); err != nil {
		return nil, err
	}
	m.end()
	f := &Figures{}
	f.merge(
		map[string]float64{"idle_cpu_percent_of_one": 100 * (m.last.CPUSeconds - m.server.CPUSeconds) / e.Measure.Seconds()})
	if entries, ok := m.numbers()["log_entries"]; ok {
		f.merge(map[string]float64{"log_entries_per_second": entries / e.Measure.Seconds()})
	}
	return f, nil
}

// sessionPart are the sessions that one connection keeps alive.
type sessionPart struct {
	c   *resp.Conn
	ids []string
}

// openSessions opens e.Sizes.Sessions sessions, each with a lock.
func openSessions(ctx context.Context, e Env) ([]*sessionPart, error) {
	parts := make([]*sessionPart, keepers)
	errs := make([]error, keepers)
	var group sync.WaitGroup
	for i := range parts {
		group.Go(func() { parts[i], errs[i] = openPart(ctx, e, i) })
	}
	group.Wait()
	return parts, errors.Join(errs...)
}

func openPart(ctx context.Context, e Env, part int) (*sessionPart, error) {
	c, err := writer(ctx, e)
	if err != nil {
		return nil, err
	}
	p := &sessionPart{c: c}
	lease := strconv.FormatInt(e.Client.TTL.Milliseconds(), 10)
	for from := part; from < e.Sizes.Sessions; from += keepers * fillDepth {
		var numbers []int
		for i := from; i < min(from+keepers*fillDepth, e.Sizes.Sessions); i += keepers {
			numbers = append(numbers, i)
			c.Append("session.open", "px", lease)
		}
		if err := c.Flush(); err != nil {
			return nil, err
		}
		first := len(p.ids)
		for range numbers {
			v, err := c.Read()
			if err != nil {
				return nil, fmt.Errorf("open a session: %w", err)
			}
			p.ids = append(p.ids, strconv.FormatInt(v.Num, 10))
		}
		for i, n := range numbers {
			c.Append("lock.acquire", lockKey(n), holder, "session", p.ids[first+i])
		}
		if err := readAll(c, len(numbers), nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// readAll flushes, reads n replies and counts nulls.
func readAll(c *resp.Conn, n int, nulls *atomic.Int64) error {
	if err := c.Flush(); err != nil {
		return err
	}
	for range n {
		v, err := c.Read()
		if err != nil {
			return err
		}
		if v.IsNull() && nulls != nil {
			nulls.Add(1)
		}
	}
	return nil
}

// keepSlices is the number of portions in which an interval's keep-alives are sent, since real clients are not in step.
const keepSlices = 20

func (p *sessionPart) keep(ctx context.Context, interval time.Duration, kept, missed *atomic.Int64) error {
	defer p.c.Close()
	tick := time.NewTicker(interval / keepSlices)
	defer tick.Stop()
	for slice := 0; ; slice = (slice + 1) % keepSlices {
		ids := p.ids[len(p.ids)*slice/keepSlices : len(p.ids)*(slice+1)/keepSlices]
		for _, id := range ids {
			p.c.Append("session.keepalive", id)
		}
		if err := readAll(p.c, len(ids), missed); err != nil {
			return err
		}
		kept.Add(int64(len(ids)))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// bound opens connections with a session each, which holds a lock and is bound to the connection.
func bound(ctx context.Context, e Env) (*Figures, error) {
	lease := strconv.FormatInt(e.Client.TTL.Milliseconds(), 10)
	check := func(c *resp.Conn, i int) error {
		v, err := c.Do("lock.check", lockKey(i), holder)
		if err == nil && v.IsNull() {
			err = errNotMine
		}
		return err
	}
	return quiet(ctx, e, func(c *resp.Conn, i int) error {
		v, err := c.Do("session.open", "px", lease, "connection")
		if err != nil {
			return err
		}
		_, err = c.Do("lock.acquire", lockKey(i), holder, "session", strconv.FormatInt(v.Num, 10))
		return err
	}, check)
}

// parked opens connections that wait for an element or for a lock.
func parked(ctx context.Context, e Env) (*Figures, error) {
	if e.Target.Form != target.Native {
		return quiet(ctx, e, func(c *resp.Conn, _ int) error {
			c.Append("blpop", prefix+"parked", "0")
			return c.Flush()
		}, nil)
	}
	c, err := writer(ctx, e)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Do("lock.acquire", prefix+"parked", holder, "px", "3600000"); err != nil {
		return nil, err
	}
	return quiet(ctx, e, func(c *resp.Conn, i int) error {
		c.Append("lock.acquire", prefix+"parked", fmt.Sprintf("%016d", i), "px", "3600000", "wait", "0")
		return c.Flush()
	}, nil)
}

// quiet opens e.Sizes.Idle connections, calls say for each, and measures the servers without traffic. Finally it calls
// check for each.
func quiet(ctx context.Context, e Env, say, check func(*resp.Conn, int) error) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	before, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	conns := make([]*resp.Conn, 0, e.Sizes.Idle)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i := range e.Sizes.Idle {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], e.Client.Timeout)
		if err != nil {
			return nil, fmt.Errorf("open connection %d of %d: %w", i, e.Sizes.Idle, err)
		}
		conns = append(conns, c)
		if err := say(c, i); err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i, e.Sizes.Idle, err)
		}
	}
	after, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	f, err := atRest(ctx, e)
	if err != nil {
		return nil, err
	}
	for i, c := range conns {
		if check == nil {
			break
		}
		if err := check(c, i); err != nil {
			return nil, fmt.Errorf("connection %d of %d afterwards: %w", i, e.Sizes.Idle, err)
		}
	}
	f.merge(map[string]float64{
		"connections":          float64(e.Sizes.Idle),
		"bytes_per_connection": totalGrown(before, after) / float64(e.Sizes.Idle),
		"bytes_elsewhere":      minGrown(before, after) / float64(e.Sizes.Idle),
	})
	return f, nil
}

// minGrown returns the growth of the process that grew least: one without clients.
func minGrown(before, after []int64) float64 {
	least := after[0] - before[0]
	for i := range before {
		least = min(least, after[i]-before[i])
	}
	return float64(least)
}
