package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
)

// soakEnv marks a run that another run started (a soak, or a run for a picture), and says where to
// leave the report.
const soakEnv = "HOLDFAST_JEPSEN_SOAK"

// telling is how the lines of a verdict begin that a soak shows, beside those that are not valid.
var telling = []string{"skipped: ", "bystanders ", "bounds: ", "longest time ", "slowest recovery: ", "jepsen: "}

// maxShown is how many lines a soak shows of a run.
const maxShown = 20

// short is what a run printed, in a few lines.
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

// soak runs seed after seed for as long as told, each in a process of its own, and keeps the
// reports of runs that are not valid. The exit code is the worst run's. soak calls ran after each.
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
