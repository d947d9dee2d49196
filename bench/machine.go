package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/floor"
	"github.com/holdfast/holdfast/bench/internal/report"
)

// describeMachine says where the figures come from; dir is on the disk that counts.
func describeMachine(ctx context.Context, dir string) (report.Machine, error) {
	floors, err := floor.Measure(dir)
	return report.Machine{
		CPU: cpuModel(), CPUs: runtime.NumCPU(), Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Go: runtime.Version(), Revision: revision(ctx), Floors: floors,
	}, err
}

func firstLine(file string) string {
	text, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// revision is the commit that is measured, with + when files differ from it.
func revision(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	text := strings.TrimSpace(string(head))
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		text += "+"
	}
	return text
}
