package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// verdict is what became of a mutation.
type verdict string

const (
	killed       verdict = "killed"
	survived     verdict = "SURVIVED"
	noTest       verdict = "no such test"
	notBuilt     verdict = "does not build"
	notApplied   verdict = "does not apply"
	failsWithout verdict = "test fails without the patch"
)

// testLimit ends a test that a mutation makes hang, which then counts as killed.
const testLimit = "120s"

// runner judges mutations of the tree at root. Test results without a patch are shared.
type runner struct {
	root    string
	goflags string // of the environment

	mu       sync.Mutex
	baseline map[string]func() testResult
}

func newRunner(root string) (*runner, error) {
	out, err := exec.Command("go", "env", "GOFLAGS").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOFLAGS: %w", err)
	}
	return &runner{root: root, goflags: strings.TrimSpace(string(out)), baseline: map[string]func() testResult{}}, nil
}

// judge runs m's test on the tree as it is, then on the tree with m applied. The second return value
// is what an operator needs to see when the verdict is not killed.
func (r *runner) judge(ctx context.Context, m mutation) (verdict, string) {
	changed, err := m.apply(r.root)
	if err != nil {
		return notApplied, err.Error()
	}
	switch base := r.without(ctx, m.killedBy); {
	case base.outcome == testsFailed || base.outcome == buildFailed:
		return failsWithout, base.output
	case base.outcome == noTestRan:
		return noTest, base.output
	}
	dir, err := os.MkdirTemp("", "holdfast-mutation-")
	if err != nil {
		return notApplied, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, err := r.overlay(dir, changed)
	if err != nil {
		return notApplied, err.Error()
	}
	switch result := r.test(ctx, m.killedBy, overlay); result.outcome {
	case testsFailed:
		return killed, ""
	case buildFailed:
		return notBuilt, result.output
	case noTestRan:
		return noTest, result.output
	default:
		return survived, ""
	}
}

// without is the result of a test on the tree as it is; it runs once.
func (r *runner) without(ctx context.Context, args []string) testResult {
	key := strings.Join(args, "\x00")
	r.mu.Lock()
	once := r.baseline[key]
	if once == nil {
		once = sync.OnceValue(func() testResult { return r.test(ctx, args, "") })
		r.baseline[key] = once
	}
	r.mu.Unlock()
	return once()
}

// overlay writes the changed files into dir, and for the go command the list of what they
// stand for. Tests that build the program themselves get it by GOFLAGS.
func (r *runner) overlay(dir string, changed map[string][]byte) (string, error) {
	replace := make(map[string]string)
	for path, text := range changed {
		copied := ""
		if text != nil {
			copied = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
			if err := os.WriteFile(copied, text, 0o600); err != nil {
				return "", err
			}
		}
		replace[filepath.Join(r.root, filepath.FromSlash(path))] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

type outcome int

const (
	testsPassed outcome = iota
	testsFailed
	buildFailed
	noTestRan
)

type testResult struct {
	outcome outcome
	output  string
}

// test runs go test and tells a test that failed from a package that does not compile.
func (r *runner) test(ctx context.Context, args []string, overlay string) testResult {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-vet=off", "-timeout", testLimit}, args...)...)
	cmd.Dir, cmd.Env = r.root, os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(r.goflags+" -overlay="+overlay))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	result := readEvents(out)
	result.output += stderr.String()
	if err != nil && result.outcome == testsPassed || ctx.Err() != nil {
		result.outcome = buildFailed // go test itself failed: wrong arguments, or no such package
	}
	return result
}

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action, Test, Output string
	FailedBuild          string
}

func readEvents(out []byte) testResult {
	var result testResult
	var text strings.Builder
	ran, failed, unbuilt := false, false, false
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		ran = ran || e.Test != "" && e.Action == "run"
		failed = failed || e.Action == "fail" && e.FailedBuild == ""
		unbuilt = unbuilt || e.FailedBuild != "" || e.Action == "build-fail"
	}
	switch {
	case unbuilt:
		result.outcome = buildFailed
	case failed:
		result.outcome = testsFailed
	case !ran:
		result.outcome = noTestRan
	}
	result.output = text.String()
	return result
}
