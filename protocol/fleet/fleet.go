package fleet

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// pollInterval is how long [Await] waits between two questions.
	pollInterval = 20 * time.Millisecond
	// tailLines is how much of its log a process that ended too early is quoted with.
	tailLines = 20
)

// Await calls ready until it returns nil. It gives up when ctx ends, or one of the processes.
func Await(ctx context.Context, ready func(context.Context) error, processes ...*Process) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range processes {
			if !p.Running() {
				return fmt.Errorf("%s did not start: %s\n%s", p.Name, p.ExitState(), strings.TrimSpace(p.Tail(tailLines)))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// Build compiles the program of a package, as seen from the folder dir.
func Build(ctx context.Context, dir, program, pkg string, flags ...string) error {
	build := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	build.Dir = dir
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(program), err, text)
	}
	return nil
}

// Reserve returns n addresses on loopback at which no program listens. On Linux, they stay reserved until this program
// ends: a program that asks for one of them can listen there, and none gets them that asks for any port.
func Reserve(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		port, err := reservePort()
		if err != nil {
			return nil, fmt.Errorf("reserve a port: %w", err)
		}
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return addrs, nil
}
