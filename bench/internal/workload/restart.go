package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
)

var errNotOurs = errors.New("restart needs servers that --peers started")

// restartLimit bounds the restart of all servers.
const restartLimit = 5 * time.Minute

// restart kills all servers at once and restarts them on their data: as written, and, if the server can be told to take
// one, after a snapshot.
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
			// Without --debug Holdfast takes no snapshot on demand.
			return f, empty(ctx, e, lockKey)
		}
	}
	if took, _, err = oneRestart(ctx, e); err != nil {
		return nil, err
	}
	f.merge(map[string]float64{"serves_after_snapshot_seconds": took.Seconds()})
	return f, empty(ctx, e, lockKey)
}

// oneRestart returns the time from the start of the first process to the first acquire, and the number of keys then.
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

var errNoControl = errors.New("failover needs a target that --peers started and that has more than one server")

const (
	// failoverLimit bounds a failover.
	failoverLimit = 60 * time.Second
	// probePause is a probe's pause after a refusal, and so the resolution of the figure.
	probePause = 2 * time.Millisecond
)

// failover kills the leader e.Sizes.Failover times.
func failover(ctx context.Context, e Env) (*Figures, error) {
	if e.Control == nil {
		return nil, errNoControl
	}
	return failovers(ctx, e, e.Control.Kill, func(addr string) error { return e.Control.Start(ctx, addr) })
}

// freeze stops the leader several times. The others can only detect its silence, as after a loss of power or network.
func freeze(ctx context.Context, e Env) (*Figures, error) {
	if e.Control == nil {
		return nil, errNoControl
	}
	return failovers(ctx, e, e.Control.Freeze, e.Control.Thaw)
}

// hang makes the leader's disk writes block, several times. It needs servers with DEBUG.
func hang(ctx context.Context, e Env) (*Figures, error) {
	if e.Control == nil {
		return nil, errNoControl
	}
	return failovers(ctx, e, func(addr string) error {
		_, err := resp.Ask(ctx, addr, e.Client.Timeout, "DEBUG", "DISK", "HANG")
		return err
	}, func(addr string) error {
		return errors.Join(e.Control.Kill(addr), e.Control.Start(ctx, addr))
	})
}

// failovers disables the leader with out and restores it with back, several times.
func failovers(ctx context.Context, e Env, out, back func(addr string) error) (*Figures, error) {
	var took []time.Duration
	for range e.Sizes.Failover {
		d, err := oneFailover(ctx, e, out, back)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	f := &Figures{}
	f.merge(map[string]float64{
		"times": float64(len(took)), "fastest_ms": millis(took[0]), "median_ms": millis(took[len(took)/2]),
		"slowest_ms": millis(took[len(took)-1]),
	})
	return f, nil
}

// oneFailover disables the leader, waits for the first acquire, and restores the leader.
func oneFailover(ctx context.Context, e Env, out, back func(addr string) error) (time.Duration, error) {
	if err := e.Control.Ready(ctx); err != nil {
		return 0, err
	}
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	began := time.Now()
	if err := out(leader); err != nil {
		return 0, err
	}
	acknowledged, err := firstAcquire(limited, e, leader)
	if err != nil {
		err = fmt.Errorf("wait for a new leader after %s was gone: %w", leader, err)
		return 0, errors.Join(err, back(leader))
	}
	return acknowledged.Sub(began), back(leader)
}

// firstAcquire asks all servers except dead until one grants a lock.
func firstAcquire(ctx context.Context, e Env, dead string) (time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var probes sync.WaitGroup
	defer probes.Wait()
	first := make(chan time.Time, len(e.Target.Addrs))
	for _, addr := range e.Target.Addrs {
		if addr != dead {
			probes.Go(func() { probe(ctx, e, addr, first) })
		}
	}
	select {
	case at := <-first:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// probe asks a server until it grants a lock or ctx ends.
func probe(ctx context.Context, e Env, addr string, first chan<- time.Time) {
	tokens := newTokens()
	for ctx.Err() == nil {
		p, err := e.Target.Probe(ctx, addr, e.Client)
		if err != nil {
			_ = rest(ctx, probePause)
			continue
		}
		for ctx.Err() == nil {
			token := tokens.token()
			if ok, err := p.Acquire(ctx, prefix+"failover:"+token, token); ok && err == nil {
				first <- time.Now()
				p.Close()
				return
			}
			_ = rest(ctx, probePause)
		}
		p.Close()
	}
}
