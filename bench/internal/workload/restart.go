package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
)

var errNotOurs = errors.New("restart needs servers that --peers started")

// restartLimit is when servers have not come back.
const restartLimit = 5 * time.Minute

// restart kills all servers at once and starts them on what was stored: as written, and,
// where a server can be told to take a snapshot, again after a snapshot.
func restart(ctx context.Context, e Env) (*Figures, error) {
	if e.Control == nil {
		return nil, errNotOurs
	}
	if err := fill(ctx, e, e.Sizes.Locks, lockKey); err != nil {
		return nil, err
	}
	f := &Figures{}
	f.merge(map[string]float64{"held_locks": float64(e.Sizes.Locks)})
	took, found, err := oneRestart(ctx, e)
	if err != nil {
		return nil, err
	}
	f.merge(map[string]float64{"serves_after_seconds": took.Seconds(), "found_locks": float64(found)})
	for _, addr := range e.Target.Addrs {
		if takeSnapshot(ctx, addr) != nil {
			// Without --debug Holdfast takes none on demand.
			return f, empty(ctx, e, lockKey)
		}
	}
	if took, _, err = oneRestart(ctx, e); err != nil {
		return nil, err
	}
	f.merge(map[string]float64{"serves_after_snapshot_seconds": took.Seconds()})
	return f, empty(ctx, e, lockKey)
}

// oneRestart is the time from the start of the first process to the first acquire, and how many
// keys there were then.
func oneRestart(ctx context.Context, e Env) (time.Duration, int64, error) {
	for _, addr := range e.Target.Addrs {
		if err := e.Control.Kill(addr); err != nil {
			return 0, 0, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	started := time.Now()
	for _, addr := range e.Target.Addrs {
		if err := e.Control.Start(ctx, addr); err != nil {
			return 0, 0, err
		}
	}
	at, err := firstAcquire(limited, e, "")
	if err != nil {
		return 0, 0, fmt.Errorf("wait for a lock after a restart: %w", err)
	}
	if err := e.Control.Ready(limited); err != nil {
		return 0, 0, err
	}
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	size, err := resp.Ask(ctx, leader, e.Client.Timeout, "DBSIZE")
	return at.Sub(started), size.Num, err
}
