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

// settle is how long memory may settle before it is read.
const settle = 3 * time.Second

// flushLimit suits many keys.
const flushLimit = time.Minute

// lockKey returns a key of the workload memory, of 24 bytes.
func lockKey(n int) string { return fmt.Sprintf("%slock:%013d", prefix, n) }

const lockBytes = len(prefix) + len("lock:") + 13 + 16 // the key and a token

// memory holds many locks and returns the growth of the processes.
func memory(ctx context.Context, e Env) (*Figures, error) {
	before, err := resident(ctx, e)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := fillLocks(ctx, e, e.Sizes.Locks); err != nil {
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

// grown returns the growth of the process that grew most.
func grown(before, after []int64) float64 {
	var most int64
	for i := range before {
		most = max(most, after[i]-before[i])
	}
	return float64(most)
}

// resident returns the processes' memory once it has settled.
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

// empty deletes the e.Sizes.Locks keys that fill wrote.
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

// flush empties a target of our own, since leftover keys would expire in the next target's window.
func flush(ctx context.Context, e Env) error {
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return err
	}
	_, err = resp.Ask(ctx, leader, flushLimit, "FLUSHALL")
	return err
}

// idle opens connections that send PING once, and then nothing during the window.
func idle(ctx context.Context, e Env) (*Figures, error) {
	return quiet(ctx, e, func(c *resp.Conn, _ int) error {
		_, err := c.Do("PING")
		return err
	}, nil)
}

// totalGrown returns the growth of all processes, over which connections are spread.
func totalGrown(before, after []int64) float64 {
	var sum int64
	for i := range before {
		sum += after[i] - before[i]
	}
	return float64(sum)
}
