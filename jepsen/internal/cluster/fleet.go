package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// endLimit bounds the graceful end of a process.
const endLimit = 20 * time.Second

// process is one process of a member.
type process struct {
	fleet.Process
	// command prepares the process; under are the words of a program that runs it, such as a tracer.
	command func(under ...string) *exec.Cmd
	ended   bool // ended deliberately; guarded by the fleet's mu
}

// Fleet implements [Processes] with real processes.
type Fleet struct {
	dir     string
	members map[string][]*process

	starts sync.Mutex // held while a process starts

	mu       sync.Mutex
	out      map[string]bool // members that must not be started
	excused  map[string]int
	findings []string
}

func newFleet(dir string) *Fleet {
	return &Fleet{dir: dir, members: map[string][]*process{}, out: map[string]bool{}, excused: map[string]int{}}
}

// add registers a process of a member. Its name, such as n1 or n1-sentinel, is also the name of its log.
func (f *Fleet) add(member, name string, command func(under ...string) *exec.Cmd) {
	p := &process{Process: fleet.Process{Name: name, Log: f.LogFile(name)}, command: command}
	p.AtEnd = func() { f.noteEnd(member, p) }
	f.members[member] = append(f.members[member], p)
}

// LogFile is the path of a process's output.
func (f *Fleet) LogFile(name string) string { return filepath.Join(f.dir, name+".log") }

// SetOut sets whether a member must not be started. No start is under way when it returns.
func (f *Fleet) SetOut(member string, out bool) {
	f.starts.Lock()
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

// Start starts the processes of a member that do not run, unless the member is out.
func (f *Fleet) Start(member string) error { return f.StartUnder(member) }

// StartUnder implements [Tracers].
func (f *Fleet) StartUnder(member string, under ...string) error {
	f.starts.Lock()
	defer f.starts.Unlock()
	if f.isOut(member) {
		return nil
	}
	for _, p := range f.members[member] {
		if p.Running() {
			continue
		}
		f.mu.Lock()
		p.ended = false
		f.mu.Unlock()
		if err := p.Start(p.command(under...)); err != nil {
			return err
		}
	}
	return nil
}

// noteEnd records the end of a process.
func (f *Fleet) noteEnd(member string, p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !p.ended && f.excused[member] == 0 {
		f.findings = append(f.findings, fmt.Sprintf("%s ended by itself at %s: %s; its last words: %s",
			p.Name, time.Now().Format("15:04:05.000"), p.ExitState(), lastLine(p.Output())))
	}
}

// lastLine returns the line of an output's last panic or fatal error, or else the last line.
func lastLine(output string) string {
	for _, begins := range []string{"\npanic: ", "\nfatal error: "} {
		if n := strings.LastIndex("\n"+output, begins); n >= 0 {
			line, _, _ := strings.Cut(output[n:], "\n")
			return line
		}
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

// Kill kills a member (kill -9).
func (f *Fleet) Kill(member string) error { return f.end(member, syscall.SIGKILL) }

// Stop stops a member gracefully.
func (f *Fleet) Stop(member string) error { return f.end(member, syscall.SIGTERM) }

func (f *Fleet) end(member string, sig syscall.Signal) error {
	var errs []error
	for _, p := range f.members[member] {
		if !p.Running() {
			continue
		}
		f.mu.Lock()
		p.ended = true
		f.mu.Unlock()
		tracer := tracerOf(p.PID())
		errs = append(errs, p.Signal(sig))
		if tracer != nil && sig == syscall.SIGKILL {
			_ = tracer.Kill() // a thread that its tracer blocks would not end
		}
	}
	for _, p := range f.members[member] {
		if err := p.Wait(endLimit); err != nil {
			f.Report(err.Error())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tracerOf returns the process that traces another, or nil if there is none or the platform cannot tell.
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

// Pause freezes a member (SIGSTOP).
func (f *Fleet) Pause(member string) error { return f.signal(member, syscall.SIGSTOP) }

// Resume resumes a frozen member.
func (f *Fleet) Resume(member string) error { return f.signal(member, syscall.SIGCONT) }

func (f *Fleet) signal(member string, sig syscall.Signal) error {
	var errs []error
	for _, p := range f.members[member] {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(errs...)
}

// PIDs implements [Tracers].
func (f *Fleet) PIDs(member string) []int {
	var pids []int
	for _, p := range f.members[member] {
		if p.Running() {
			pids = append(pids, p.PID())
		}
	}
	return pids
}

// Running reports whether all processes of a member run.
func (f *Fleet) Running(member string) bool {
	return !slices.ContainsFunc(f.members[member], func(p *process) bool { return !p.Running() })
}

// Excuse tolerates the end of a member's processes until the returned function is called.
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

// Findings returns what went wrong with processes.
func (f *Fleet) Findings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.findings...)
}

// close kills all processes.
func (f *Fleet) close() error {
	var errs []error
	for member := range f.members {
		errs = append(errs, f.Kill(member))
	}
	return errors.Join(errs...)
}
