// Package fleet runs programs as processes: the nodes of the demo, and the servers that tests, jepsen and benchmarks
// start, kill and start again. A [Relay] is a port before one of them, where tests and benchmarks delay and cut.
//
// It promises: on Linux, no process outlives this program, and no program on the machine is given an address of
// [Reserve] by chance; no signal of the terminal reaches a process there; [Process.Kill] and [Process.Wait] return
// when the process has ended and all that it wrote is in its log.
//
// It starts programs and imports none of the server's packages, so that every layer can use it. Goroutines: one waits
// for each process; one, bound to an OS thread, starts them all; a relay has one, and three for each connection. Start
// reading at [Process].
package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process runs a program, which can be started again after its end. Its methods may be called at any time by any
// goroutine, except Start, which one goroutine calls while the program does not run.
type Process struct {
	Name string
	// Log is the file that the output is appended to, unless the command has places of its own for it.
	Log string
	// AtEnd, unless nil, is called when the program has ended, before Done is closed.
	AtEnd func()

	mu   sync.Mutex
	last *run // nil before the first start
}

// run is from a start of the program to its end.
type run struct {
	cmd      *exec.Cmd
	done     chan struct{}
	logStart int64 // size of the log before it
}

// Start starts cmd. A command without SysProcAttr gets the attributes that the package promises.
func (p *Process) Start(cmd *exec.Cmd) error {
	r := &run{cmd: cmd, done: make(chan struct{})}
	if p.Log != "" {
		log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("open log of %s: %w", p.Name, err)
		}
		defer log.Close() // the process has its own descriptor
		info, err := log.Stat()
		if err != nil {
			return fmt.Errorf("open log of %s: %w", p.Name, err)
		}
		r.logStart = info.Size()
		if cmd.Stdout == nil {
			cmd.Stdout = log
		}
		if cmd.Stderr == nil {
			cmd.Stderr = log
		}
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = childAttr()
	}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.mu.Lock()
	p.last = r
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // ExitState has the outcome
		if p.AtEnd != nil {
			p.AtEnd()
		}
		close(r.done)
	}()
	return nil
}

// spawner runs functions on a thread that never ends: the kernel ends a process of [childAttr] with the thread that
// started it.
var spawner = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

func (p *Process) lastRun() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Done is closed when the program ends that was started last; nil before the first start.
func (p *Process) Done() <-chan struct{} {
	if r := p.lastRun(); r != nil {
		return r.done
	}
	return nil
}

// Running reports whether the program was started and has not ended.
func (p *Process) Running() bool {
	done := p.Done()
	select {
	case <-done:
		return false
	default:
		return done != nil
	}
}

// PID is the number of the process that was started last; 0 before the first start.
func (p *Process) PID() int {
	if r := p.lastRun(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// ExitState is how the program ended last, as "exit status 0" or "signal: killed". Requires: it has ended.
func (p *Process) ExitState() string { return p.lastRun().cmd.ProcessState.String() }

// ExitCode is the exit status of the program, or -1 if a signal ended it. Requires: it has ended.
func (p *Process) ExitCode() int { return p.lastRun().cmd.ProcessState.ExitCode() }

// Signal sends a signal. There is none to send to a program that does not run.
func (p *Process) Signal(sig os.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := p.lastRun().cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Kill ends the program as kill -9 does.
func (p *Process) Kill() {
	if r := p.lastRun(); r != nil {
		_ = r.cmd.Process.Kill() // it fails if the program has ended
		<-r.done
	}
}

// Stop asks the program to end, and kills it after the limit, which is an error.
func (p *Process) Stop(limit time.Duration) error {
	return errors.Join(p.Signal(syscall.SIGTERM), p.Wait(limit))
}

// Wait waits for the program's end. After the limit it kills the program, which is an error.
func (p *Process) Wait(limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Done():
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s", p.Name, limit)
	}
}

// Output is what the program has written to the log since it was started last.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.Log)
	r := p.lastRun()
	if err != nil || r == nil || int64(len(text)) < r.logStart {
		return ""
	}
	return string(text[r.logStart:])
}

// Tail is the last n lines of Output.
func (p *Process) Tail(n int) string {
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
