package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/picture"
	"github.com/holdfast/holdfast/jepsen/internal/report"
)

const (
	// pictureSeed is a seed with each of the two faults twice, each long enough for a failover.
	pictureSeed    = 1
	pictureClients = 5
)

var (
	pictureTargets = []string{"redis-sentinel", "holdfast"}
	// pictureRun is the run that is drawn; target, seed and clients are added.
	pictureRun = []string{
		"--workload=onelock", "--nemesis=partition-leader,kill-leader", "--net=kernel",
		"--nodes=3", "--time=36s", "--timeout=1s", "--rate=50",
	}
)

// draw runs each target in a process of its own, and draws the histories. It returns the exit code of the last run,
// which is Holdfast's.
func draw(ctx context.Context, o *options) (code int, err error) {
	p := &picture.Picture{Seed: o.seed, Clients: pictureClients}
	for _, target := range pictureTargets {
		dir := filepath.Join(o.store, "picture-"+target)
		if code, err = perform(ctx, dir, append([]string{
			"--target=" + target, fmt.Sprintf("--seed=%d", o.seed), fmt.Sprintf("--concurrency=%d", pictureClients),
		}, pictureRun...)); err != nil {
			return exitUnknown, fmt.Errorf("run %s: %w", target, err)
		}
		if code == exitUnknown {
			return exitUnknown, fmt.Errorf("nothing to draw of %s, see %s", target, dir)
		}
		var rep report.Report
		text, err := os.ReadFile(filepath.Join(dir, "results.json"))
		if err == nil {
			err = json.Unmarshal(text, &rep)
		}
		if err != nil {
			return exitUnknown, fmt.Errorf("read report of %s: %w", target, err)
		}
		h, err := history.ReadFile(filepath.Join(dir, "history.jsonl"))
		if err != nil {
			return exitUnknown, err
		}
		p.Time, p.Nodes = rep.Run.Time, rep.Run.Nodes
		p.Runs = append(p.Runs, picture.Run{Target: target, Version: rep.Run.Version, History: h})
	}
	return code, p.Write(o.picture)
}

// perform does a run, whose report goes into dir, and returns the exit code.
func perform(ctx context.Context, dir string, args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return exitUnknown, fmt.Errorf("find this program: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return exitUnknown, fmt.Errorf("remove the run before: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), soakEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return exit.ExitCode(), nil
	}
	return exitValid, err
}
