// Command bench measures lock servers against each other. It reaches Holdfast only by its socket: of this module it
// imports only package protocol.
//
//	go run ./bench --targets redis=127.0.0.1:6379,holdfast=127.0.0.1:6380+127.0.0.1:6381
//	go run ./bench --peers holdfast,redis-always --workloads uncontended,reads --rounds 3
//
// It promises that targets are measured in turn, in one run on one machine, so that ratios are comparable where
// absolute figures are not. bench/README.md explains the figures.
//
// Start reading at matrix.go, which orders the runs, then internal/workload.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/bench/internal/floor"
	"github.com/holdfast/holdfast/bench/internal/report"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run measures as args say, prints the tables and writes the figures to files.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	if o.write != "" {
		return rewriteResults(o.write, o.out, stderr)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the folder for results: %w", err)
	}
	result := &report.Result{Started: time.Now(), Command: "go run ./bench " + quoteArgs(args)}
	subjects, stop, err := startSubjects(ctx, o, result, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if result.Machine, err = describeMachine(ctx, o.out); err != nil {
		return err
	}
	for _, s := range subjects {
		result.Targets = append(result.Targets, s.Target)
	}
	runErr := runMatrix(ctx, o, subjects, result, stderr)
	if len(result.Runs) == 0 {
		return runErr
	}
	// The results before an interruption are kept.
	return errors.Join(runErr, write(o, result, stdout, stderr))
}

func write(o options, result *report.Result, stdout, stderr io.Writer) error {
	base := filepath.Join(o.out, result.Started.UTC().Format("20060102-150405"))
	type file struct {
		name  string
		write func(io.Writer) error
	}
	files := []file{
		{base + ".json", result.WriteJSON},
		{base + ".md", func(w io.Writer) error { return result.WriteMarkdown(w, workload.All()) }},
	}
	if o.preset != "" {
		files = append(files, file{filepath.Join(o.out, o.preset+".json"), result.WriteJSON})
	}
	for _, f := range files {
		if err := writeFile(f.name, f.write); err != nil {
			return err
		}
		fmt.Fprintln(stderr, "wrote", f.name)
	}
	return result.WriteMarkdown(stdout, workload.All())
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

// describeMachine describes the machine and the disk of dir.
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

// revision returns the measured commit, with a + if files differ from it.
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
