package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
)

const (
	// steadyConnections is the number of clients of a workload that measures the effect of something on them.
	steadyConnections = 64
	// snapshotLimit bounds a snapshot.
	snapshotLimit = 5 * time.Minute
	// snapshotPause is the interval of polls whether Redis has written a snapshot.
	snapshotPause = 20 * time.Millisecond
)

// snapshot measures pairs at a fixed rate beside many held locks: undisturbed, while the leader takes one snapshot
// after another, and while all servers do.
func snapshot(ctx context.Context, e Env) (*Figures, error) {
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, e, e.Sizes.Locks, lockKey); err != nil {
		return nil, err
	}
	e.Connections, e.RatePerSecond = steadyConnections, e.Sizes.Steady
	f := &Figures{Errors: make(map[string]int64)}
	f.merge(map[string]float64{"held_locks": float64(e.Sizes.Locks)})
	for _, phase := range []struct {
		name  string
		addrs []string
	}{{"before", nil}, {"leader", []string{leader}}, {"all", e.Target.Addrs}} {
		s := &snapshots{addrs: phase.addrs}
		one, err := s.during(ctx, e)
		if err != nil {
			return nil, err
		}
		acquire := one.Steps["acquire"]
		f.merge(map[string]float64{"p50_ms_" + phase.name: acquire.P50Micros / 1000, "p99_ms_" +
			phase.name: acquire.P99Micros / 1000})
		for text, n := range one.Errors {
			f.Errors[text] += n
		}
		if s.taken > 0 {
			f.merge(map[string]float64{"snapshot_seconds_" + phase.name: s.took.Seconds() / float64(s.taken)})
		}
	}
	return f, empty(ctx, e, lockKey)
}

// snapshots makes servers take one snapshot after another within a window.
type snapshots struct {
	addrs []string
	mu    sync.Mutex
	taken int           // guarded by mu
	took  time.Duration // guarded by mu
	err   error         // guarded by mu
}

// during measures pairs meanwhile.
func (s *snapshots) during(ctx context.Context, e Env) (*load.Summary, error) {
	ops, end, err := pairsOf(ctx, e)
	if err != nil {
		return nil, err
	}
	defer end()
	open, stop := context.WithCancel(ctx)
	defer stop()
	var servers sync.WaitGroup
	summary, err := load.Run(ctx, load.Config{
		Warmup: e.Warmup, Measure: e.Measure, RatePerSecond: e.RatePerSecond, End: stop,
		Begin: func() {
			for _, addr := range s.addrs {
				servers.Go(func() { s.takeAll(ctx, open, addr) })
			}
		},
	}, ops)
	stop()
	servers.Wait()
	return summary, errors.Join(err, s.err)
}

// takeAll takes snapshots until the window closes, and waits for the last.
func (s *snapshots) takeAll(ctx, open context.Context, addr string) {
	for open.Err() == nil {
		start := time.Now()
		err := takeSnapshot(ctx, addr)
		s.mu.Lock()
		s.taken++
		s.took += time.Since(start)
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// takeSnapshot writes a server's whole state: by DEBUG SNAPSHOT in Holdfast, by BGREWRITEAOF in Redis, or by BGSAVE
// without an append-only file.
func takeSnapshot(ctx context.Context, addr string) error {
	c, err := resp.Dial(ctx, addr, snapshotLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.Do("INFO")
	if err != nil {
		return err
	}
	command, busy := "BGSAVE", "rdb_bgsave_in_progress:1"
	switch {
	case strings.Contains(info.Str, "holdfast_version:"):
		if _, err := c.Do("DEBUG", "SNAPSHOT"); err != nil {
			return fmt.Errorf("%s takes no snapshot on demand (the peer holdfast-debug does): %w", addr, err)
		}
		return nil
	case strings.Contains(info.Str, "aof_enabled:1"):
		command, busy = "BGREWRITEAOF", "aof_rewrite_in_progress:1"
	}
	if _, err := c.Do(command); err != nil {
		return err
	}
	for {
		if err := rest(ctx, snapshotPause); err != nil {
			return err
		}
		info, err := c.Do("INFO", "persistence")
		if err != nil || !strings.Contains(info.Str, busy) && !strings.Contains(info.Str, "aof_rewrite_scheduled:1") {
			return err
		}
	}
}
