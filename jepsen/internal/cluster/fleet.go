package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// endLimit is how long a process may take to end in good order.
const endLimit = 20 * time.Second

// spec says how a process is started.
type spec struct {
	name string // of the log: "n1", "n1-sentinel"
	// command prepares the process; under are words before its own, of a program that runs the process.
	command func(under ...string) *exec.Cmd
}

// process is a started process.
type process struct {
	name  string
	cmd   *exec.Cmd
	done  chan struct{}
	ended bool // on purpose; guarded by the fleet's mu
}

// Fleet is [Processes] that are real.
type Fleet struct {
	dir   string
	specs map[string][]spec
	spawn chan func()

	starts sync.Mutex // of a process at a time

	mu       sync.Mutex
	out      map[string]bool // members that nothing starts
	running  map[string][]*process
	excused  map[string]int
	findings []string
}

func newFleet(dir string) *Fleet {
	f := &Fleet{
		dir: dir, specs: map[string][]spec{}, spawn: make(chan func()),
		out: map[string]bool{}, running: map[string][]*process{}, excused: map[string]int{},
	}
	go func() {
		// Pdeathsig ends a child with the thread that started the child: this thread stays.
		runtime.LockOSThread()
		for start := range f.spawn {
			start()
		}
	}()
	return f
}

// LogFile is where a member's process writes.
func (f *Fleet) LogFile(name string) string { return filepath.Join(f.dir, name+".log") }

// SetOut says that nothing starts a member from now on, or that it may be started.
func (f *Fleet) SetOut(member string, out bool) {
	f.starts.Lock() // no start is under way when this returns
	defer f.starts.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out[member] = out
}

func (f *Fleet) isOut(member string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out[member]
}

// Start starts what of a member is not running, unless the member is out.
func (f *Fleet) Start(member string) error { return f.StartUnder(member) }

// StartUnder implements [Tracers].
func (f *Fleet) StartUnder(member string, under ...string) error {
	f.starts.Lock()
	defer f.starts.Unlock()
	if f.isOut(member) {
		return nil
	}
	for _, s := range f.specs[member] {
		if f.find(member, s.name) != nil {
			continue
		}
		if err := f.startOne(member, s, under); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) find(member, name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.running[member] {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (f *Fleet) startOne(member string, s spec, under []string) error {
	log, err := os.OpenFile(f.LogFile(s.name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", s.name, err)
	}
	defer log.Close()
	fmt.Fprintf(log, "--- started by the tests at %s\n", time.Now().Format("15:04:05.000"))
	cmd := s.command(under...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	started := make(chan error)
	f.spawn <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	p := &process{name: s.name, cmd: cmd, done: make(chan struct{})}
	f.mu.Lock()
	f.running[member] = append(f.running[member], p)
	f.mu.Unlock()
	go f.wait(member, p)
	return nil
}

// wait takes note of a process's end.
func (f *Fleet) wait(member string, p *process) {
	err := p.cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !p.ended && f.excused[member] == 0 {
		why := "exit status 0"
		if err != nil {
			why = err.Error()
		}
		f.findings = append(f.findings, fmt.Sprintf("%s ended by itself at %s: %s; its last words: %s",
			p.name, time.Now().Format("15:04:05.000"), why, lastLine(f.LogFile(p.name))))
	}
	rest := f.running[member][:0]
	for _, q := range f.running[member] {
		if q != p {
			rest = append(rest, q)
		}
	}
	f.running[member] = rest
	close(p.done)
}

// lastLine is the last line of a log that tells something.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	for _, begins := range []string{"\npanic: ", "\nfatal error: "} {
		if n := strings.LastIndex(string(data), begins); n >= 0 {
			line, _, _ := strings.Cut(string(data[n+1:]), "\n")
			return line
		}
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// Kill ends a member as kill -9 does.
func (f *Fleet) Kill(member string) error { return f.end(member, syscall.SIGKILL) }

// Stop tells a member to end in good order.
func (f *Fleet) Stop(member string) error { return f.end(member, syscall.SIGTERM) }

func (f *Fleet) end(member string, sig syscall.Signal) error {
	f.mu.Lock()
	ps := append([]*process(nil), f.running[member]...)
	for _, p := range ps {
		p.ended = true
	}
	f.mu.Unlock()
	var errs []error
	for _, p := range ps {
		tracer := tracerOf(p.cmd.Process.Pid)
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("signal %s: %w", p.name, err))
		}
		if tracer != nil && sig == syscall.SIGKILL {
			_ = tracer.Kill() // a thread that the tracer holds up would not end
		}
	}
	for _, p := range ps {
		select {
		case <-p.done:
		case <-time.After(endLimit):
			f.Report(fmt.Sprintf("%s did not end within %s of %s", p.name, endLimit, sig))
			errs = append(errs, p.cmd.Process.Kill())
			<-p.done
		}
	}
	return errors.Join(errs...)
}

// tracerOf is the process that traces another; nil without, and where that cannot be known.
func tracerOf(pid int) *os.Process {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	_, line, _ := strings.Cut(string(status), "\nTracerPid:")
	line, _, _ = strings.Cut(line, "\n")
	tracer, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || tracer == 0 {
		return nil
	}
	p, err := os.FindProcess(tracer)
	if err != nil {
		return nil
	}
	return p
}

// Pause freezes a member, Resume lets a member go on.
func (f *Fleet) Pause(member string) error { return f.signal(member, syscall.SIGSTOP) }

// Resume lets a member go on.
func (f *Fleet) Resume(member string) error { return f.signal(member, syscall.SIGCONT) }

func (f *Fleet) signal(member string, sig syscall.Signal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.running[member] {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("signal %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// PIDs implements [Tracers].
func (f *Fleet) PIDs(member string) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var pids []int
	for _, p := range f.running[member] {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// Running reports whether all of a member runs.
func (f *Fleet) Running(member string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running[member]) == len(f.specs[member])
}

// Excuse makes the end of a member's processes no finding, until the returned function is called.
func (f *Fleet) Excuse(member string) (over func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.excused[member]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.excused[member]--
	}
}

// Report adds a finding.
func (f *Fleet) Report(finding string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.findings = append(f.findings, finding)
}

// Findings are what went wrong with processes.
func (f *Fleet) Findings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.findings...)
}

// close kills all and starts no more.
func (f *Fleet) close() error {
	var errs []error
	for member := range f.specs {
		errs = append(errs, f.Kill(member))
	}
	close(f.spawn)
	return errors.Join(errs...)
}
