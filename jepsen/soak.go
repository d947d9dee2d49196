package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
)

// soakEnv is the environment variable of a run that was started by a soak or for a picture. It has the folder for the
// report.
const soakEnv = "HOLDFAST_JEPSEN_SOAK"

// telling has prefixes of the lines of a verdict that a soak shows besides those that are not valid.
var telling = []string{"skipped: ", "bystanders ", "bounds: ", "longest time ", "slowest recovery: ", "jepsen: "}

// maxShown bounds the lines that a soak shows of a run.
const maxShown = 20

// short returns the most important lines of a run's output.
func short(out string) string {
	var lines []string
	bad := false
	for line := range strings.Lines(out) {
		within := bad && strings.HasPrefix(line, " ")
		bad = within || strings.Contains(line, string(checker.Invalid)+" (")
		tells := slices.ContainsFunc(telling, func(t string) bool { return strings.HasPrefix(line, t) })
		if (bad || tells || strings.Contains(line, " operations: ")) && len(lines) < maxShown {
			lines = append(lines, "    "+line)
		}
	}
	return strings.Join(lines, "")
}

// soak runs seed after seed for the given time, each in a process of its own, and keeps the reports of runs that are
// not valid. The exit code is the worst run's. soak calls ran after each run.
func soak(ctx context.Context, o *options, args []string, ran func()) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return exitUnknown, fmt.Errorf("find this program: %w", err)
	}
	until := time.Now().Add(o.soak)
	var bad []string
	runs := 0
	for seed := o.seed; time.Now().Before(until) && ctx.Err() == nil; seed++ {
		dir := filepath.Join(o.store, fmt.Sprintf("soak-%d", seed))
		cmd := exec.CommandContext(ctx, self, append(args, fmt.Sprintf("--seed=%d", seed), "--soak=0")...)
		cmd.Env = append(os.Environ(), soakEnv+"="+dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			os.RemoveAll(dir) // interrupted: there is no verdict
			break
		}
		runs++
		var exit *exec.ExitError
		switch {
		case err == nil:
			os.RemoveAll(dir)
			fmt.Printf("seed %d: valid\n%s", seed, short(string(out)))
		case errors.As(err, &exit):
			bad = append(bad, fmt.Sprint(seed))
			fmt.Printf("seed %d: exit status %d, kept in %s\n%s", seed, exit.ExitCode(), dir, short(string(out)))
			if err := os.WriteFile(filepath.Join(dir, "output.txt"), out, 0o644); err != nil {
				fmt.Fprintln(os.Stderr, string(out))
			}
		default:
			return exitUnknown, fmt.Errorf("run seed %d: %w", seed, err)
		}
		ran()
	}
	fmt.Printf("%d runs, %d not valid", runs, len(bad))
	if bad != nil {
		fmt.Printf(": seeds %s\n", strings.Join(bad, ", "))
		return exitInvalid, nil
	}
	fmt.Println()
	if runs == 0 {
		return exitUnknown, nil
	}
	return exitValid, nil
}

// virtualSums matches the last line of a run in virtual time.
var virtualSums = regexp.MustCompile(
	`(\d+) runs, (\S+) of virtual time, (\d+) operations, (\d+) terms, (\d+) faults of (\d+) kinds`)

// virtualSoak runs one seed after another in virtual time.
type virtualSoak struct {
	test, length, store string
	until               time.Time
	stop                context.CancelFunc

	mu                        sync.Mutex
	next                      uint64 // seed
	runs                      int
	operations, terms, faults int
	fewest                    int // the smallest number of kinds of faults in a run
	time                      time.Duration
	bad                       []uint64
	err                       error
}

// soakVirtual has each core run seed after seed in virtual time, until the time is over or a run is not valid.
func soakVirtual(ctx context.Context, o *options) (int, error) {
	dir, err := os.MkdirTemp("", "holdfast-virtual-")
	if err != nil {
		return exitUnknown, fmt.Errorf("make folder for the tests: %w", err)
	}
	defer os.RemoveAll(dir)
	s := &virtualSoak{
		test: filepath.Join(dir, "virtual.test"), length: o.virtual, store: o.store, until: time.Now().Add(o.soak), next: o.seed,
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", o.tags, "-o", s.test,
		"github.com/holdfast/holdfast/jepsen/internal/virtual")
	if out, err := build.CombinedOutput(); err != nil {
		return exitUnknown, fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for time.Now().Before(s.until) && ctx.Err() == nil {
				s.run(ctx)
			}
		})
	}
	wg.Wait()
	fmt.Printf("seeds %d to %d: %d valid, %s of virtual time, %d operations, %d terms, %d faults of at least %d kinds in "+
		"each run; not valid: %d\n", o.seed, s.next-1, s.runs, s.time, s.operations, s.terms, s.faults, s.fewest, s.bad)
	switch {
	case s.bad != nil:
		return exitInvalid, nil
	case s.err != nil || s.runs == 0:
		return exitUnknown, s.err
	}
	return exitValid, nil
}

// run runs the next seed in a process of its own. It keeps the output of a run that is not valid, and ends the other
// runs.
func (s *virtualSoak) run(ctx context.Context) {
	s.mu.Lock()
	seed := s.next
	s.next++
	s.mu.Unlock()
	cmd := exec.CommandContext(ctx, s.test, "-test.run=WorkloadsUnderMixed", "-test.v", "-test.timeout=1h")
	// A run has one core alone, and a small heap, so collections can be rare.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=1000", "HOLDFAST_JEPSEN_LENGTH="+s.length,
		fmt.Sprintf("HOLDFAST_JEPSEN_SEEDS=1@%d", seed))
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return // interrupted: there is no verdict
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := virtualSums.FindStringSubmatch(string(out))
	if err != nil || sums == nil {
		path := filepath.Join(s.store, fmt.Sprintf("virtual-%d.txt", seed))
		fmt.Printf("seed %d: not valid (%v), kept in %s\n", seed, err, path)
		s.bad = append(s.bad, seed)
		s.err = errors.Join(os.MkdirAll(s.store, 0o755), os.WriteFile(path, out, 0o644))
		s.stop()
		return
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(sums[i])
		return n
	}
	length, _ := time.ParseDuration(sums[2])
	if kinds := number(6); s.runs == 0 || kinds < s.fewest {
		s.fewest = kinds
	}
	s.runs++
	s.time += length
	s.operations, s.terms, s.faults = s.operations+number(3), s.terms+number(4), s.faults+number(5)
}
