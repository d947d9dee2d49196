package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast/holdfast/bench/internal/proc"
	"github.com/holdfast/holdfast/bench/internal/resp"
)

var errNoPIDs = errors.New("the servers' processes are not known: give --pids")

// settle is how long memory is left alone before the reading.
const settle = 3 * time.Second

// flushLimit allows for the many keys that there may be.
const flushLimit = time.Minute

// lockKey is a key that memory holds: 24 bytes.
func lockKey(n int) string { return fmt.Sprintf("%slock:%013d", prefix, n) }

const lockBytes = len(prefix) + len("lock:") + 13 + 16 // the key and a token

// memory holds many locks and compares the processes with the processes before.
func memory(ctx context.Context, e Env) (*Figures, error) {
	before, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := fill(ctx, e, e.Sizes.Locks, lockKey); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	f := &Figures{}
	f.merge(map[string]float64{
		"held_locks":          float64(e.Sizes.Locks),
		"bytes_per_lock":      grown(before, after)/float64(e.Sizes.Locks) - float64(lockBytes),
		"filled_per_second":   float64(e.Sizes.Locks) / took.Seconds(),
		"server_rss_mega_max": float64(slices.Max(after)) / (1 << 20),
	})
	return f, empty(ctx, e, lockKey)
}

// grown is the growth of the process that grew most.
func grown(before, after []int64) float64 {
	var most int64
	for i := range before {
		most = max(most, after[i]-before[i])
	}
	return float64(most)
}

// resident reads the processes' memory when the memory has settled.
func resident(ctx context.Context, e Env) ([]int64, error) {
	if e.Target.PIDs == nil {
		return nil, errNoPIDs
	}
	if err := rest(ctx, settle); err != nil {
		return nil, err
	}
	u, err := proc.Read(e.Target.PIDs()...)
	return u.RSSBytes, err
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// empty takes away the e.Sizes.Locks keys that fill wrote.
func empty(ctx context.Context, e Env, key func(int) string) error {
	if e.Target.Own {
		return flush(ctx, e)
	}
	c, err := writer(ctx, e)
	if err != nil {
		return err
	}
	defer c.Close()
	return batches(ctx, e.Sizes.Locks, func(i int) { c.Append("del", key(i)) }, c)
}

// flush empties a target that was started to be measured: what a run left behind expires in the
// next target's window otherwise.
func flush(ctx context.Context, e Env) error {
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return err
	}
	_, err = resp.Ask(ctx, leader, flushLimit, "FLUSHALL")
	return err
}

// idle opens connections that say PING once, and then nothing for the time that is measured.
func idle(ctx context.Context, e Env) (*Figures, error) {
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
		if _, err := c.Do("PING"); err != nil {
			return nil, fmt.Errorf("ping on connection %d of %d: %w", i, e.Sizes.Idle, err)
		}
	}
	after, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	m := newMeter(e)
	m.begin()
	if err := rest(ctx, e.Measure); err != nil {
		return nil, err
	}
	m.end()
	f := &Figures{}
	f.merge(map[string]float64{
		"connections":             float64(e.Sizes.Idle),
		"bytes_per_connection":    totalGrown(before, after) / float64(e.Sizes.Idle),
		"idle_cpu_percent_of_one": 100 * (m.last.CPUSeconds - m.server.CPUSeconds) / e.Measure.Seconds(),
	})
	return f, nil
}

// totalGrown is the growth of all processes: connections are spread over them.
func totalGrown(before, after []int64) float64 {
	var sum int64
	for i := range before {
		sum += after[i] - before[i]
	}
	return float64(sum)
}
