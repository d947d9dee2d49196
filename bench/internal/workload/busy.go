package workload

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
)

// burner is a program that keeps a core busy until its parent process ends.
const burner = `while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done`

// burnersPerCore leaves a server at most a third of a core.
const burnersPerCore = 2

// infoTimeout suits servers with little CPU.
const infoTimeout = 10 * time.Second

// busy keeps all cores busy, and counts elections. No server dies, so each election is needless.
func busy(ctx context.Context, e Env) (*Figures, error) {
	before, err := term(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	e.Connections = steadyConnections
	ops, end, err := pairsOf(ctx, e)
	if err != nil {
		return nil, err
	}
	defer end()
	stop, err := burn(ctx, burnersPerCore*runtime.NumCPU())
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	f, err := measure(ctx, e, ops)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	after, err := term(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	acquire := f.Steps["acquire"]
	return &Figures{Errors: f.Errors, Numbers: map[string]float64{
		"elections": after - before, "minutes": e.Measure.Minutes(), "pairs_per_second": f.Steps["pair"].PerSecond,
		"p50_ms": acquire.P50Micros / 1000, "p99_ms": acquire.P99Micros / 1000, "max_ms": acquire.MaxMicros / 1000,
	}}, nil
}

// burn starts n burners; stop ends them.
func burn(ctx context.Context, n int) (stop func() error, err error) {
	var all []*exec.Cmd
	stop = func() error {
		var errs error
		for _, c := range all {
			errs = errors.Join(errs, c.Process.Kill())
			_ = c.Wait() // the burner was killed
		}
		return errs
	}
	for range n {
		c := exec.CommandContext(ctx, "sh", "-c", burner)
		if err := c.Start(); err != nil {
			return stop, fmt.Errorf("keep the cores busy: %w", err)
		}
		all = append(all, c)
	}
	return stop, nil
}

// term returns the raft term of the target's leader.
func term(ctx context.Context, t target.Target) (float64, error) {
	leader, err := t.Leader(ctx)
	if err != nil {
		return 0, err
	}
	if t.Kind != target.RESP {
		m, err := target.EtcdStatus(ctx, leader)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(m.Term, 64)
	}
	info, err := resp.Ask(ctx, leader, infoTimeout, "INFO")
	if err != nil {
		return 0, err
	}
	n, err := infoNumber(info.Str, "raft_term")
	if err != nil {
		return 0, fmt.Errorf("%s counts no terms: %w", t.Name, err)
	}
	return n, nil
}

// infoNumber returns a number in a reply of INFO.
func infoNumber(text, name string) (float64, error) {
	_, rest, ok := strings.Cut(text, name+":")
	if !ok {
		return 0, fmt.Errorf("INFO has no %s", name)
	}
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
}
