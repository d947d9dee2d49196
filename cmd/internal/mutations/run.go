package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outcome is how a run of tests ended.
type outcome int

const (
	passed outcome = iota
	failed
	hung // failed, as the tests did not end
	noTest
)

// testRun is a run of some tests of a package.
type testRun struct {
	root, pkg string // as in ./fsm
	binary    string
	tests     string // for -test.run
	args      []string
	overlay   string // for tests that build the program themselves
	number    int    // of the mistake; 0 is none
	limit     time.Duration
	goOn      bool // after a test has failed
	unlimited bool // in memory: the race detector reserves terabytes
}

// maxMemoryKiB bounds the address space of a test: a mistake may make a loop append for ever.
const maxMemoryKiB = 12 << 20

func (r testRun) run(ctx context.Context) (outcome, []byte) {
	scratch, err := os.MkdirTemp("", "holdfast-mutation-")
	if err != nil {
		return failed, []byte(err.Error())
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(ctx, r.limit+10*time.Second)
	defer cancel()
	memory := strconv.Itoa(maxMemoryKiB)
	if r.unlimited {
		memory = "unlimited"
	}
	args := []string{
		"-c", `ulimit -v "$0" 2>/dev/null; exec "$@"`, memory, r.binary,
		"-test.run=" + r.tests, "-test.v", "-test.timeout=" + r.limit.String(), fmt.Sprintf("-test.failfast=%v", !r.goOn),
	}
	cmd := exec.CommandContext(ctx, "sh", append(args, r.args...)...)
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(r.pkg))
	cmd.Env = append(os.Environ(), selects+"="+strconv.Itoa(r.number), "TMPDIR="+scratch)
	if r.overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+r.overlay))
	}
	// Servers that the tests started end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case !bytes.Contains(out.Bytes(), []byte("=== RUN ")) && err == nil:
		return noTest, out.Bytes()
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return passed, out.Bytes()
	case ctx.Err() != nil || bytes.Contains(out.Bytes(), []byte("panic: test timed out after")):
		return hung, out.Bytes()
	}
	return failed, out.Bytes()
}
