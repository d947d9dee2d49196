//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that the command gets when this process gets them.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
	syscall.SIGTSTP,
}

// job is the command as a process group.
type job struct {
	cmd      *exec.Cmd
	terminal *terminal           // nil: none to share with the command
	stopped  chan syscall.Signal // the command was stopped, by which signal
	done     chan struct{}       // closed when the command has ended
	how      syscall.WaitStatus  // valid then
}

func newJob(path string, words, env []string) *job {
	cmd := &exec.Cmd{Path: path, Args: words, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return &job{cmd: cmd, stopped: make(chan syscall.Signal), done: make(chan struct{})}
}

func (j *job) start() error {
	j.terminal = sharedTerminal()
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if j.terminal != nil && j.terminal.belongsTo(j.terminal.own) {
		j.cmd.SysProcAttr.Foreground, j.cmd.SysProcAttr.Ctty = true, j.terminal.fd
	}
	diesWithParent(j.cmd.SysProcAttr)
	err := j.cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) { // a script that does not say by what: a shell's, as for execvp(3)
		words := append([]string{"sh", j.cmd.Path}, j.cmd.Args[1:]...)
		j.cmd = &exec.Cmd{
			Path: "/bin/sh", Args: words, Env: j.cmd.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			SysProcAttr: j.cmd.SysProcAttr,
		}
		err = j.cmd.Start()
	}
	if err != nil {
		return err
	}
	if j.terminal != nil {
		signal.Ignore(syscall.SIGTTOU) // this process may write and take the terminal back, from the background
	}
	go j.wait()
	return nil
}

// wait tells stops and the end of the command. os/exec tells no stops.
func (j *job) wait() {
	for {
		_, err := syscall.Wait4(j.group(), &j.how, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && j.how.Stopped():
			j.stopped <- j.how.StopSignal()
		default:
			close(j.done)
			return
		}
	}
}

// mayStop reports whether this process should stop as well: Ctrl-Z at the terminal, or reading from
// the terminal in the background. A stop by SIGSTOP is somebody's who knows the command's pid, and will let it go on.
func (j *job) mayStop(by syscall.Signal) bool { return j.terminal != nil && by != syscall.SIGSTOP }

// status is how the command ended, as shells tell it.
func (j *job) status() error {
	if j.how.Signaled() {
		j.share(j.how.Signal())
		return exitStatus{status: statusSignal + int(j.how.Signal())}
	}
	if status := j.how.ExitStatus(); status != 0 {
		return exitStatus{status: status}
	}
	return nil
}

// terminal is where the command reads and writes. A process that reads from a terminal must be of the
// terminal's foreground group, else the kernel stops the process.
type terminal struct {
	fd  int
	own int // this process's group
}

// sharedTerminal is nil where the command needs no terminal, or where others of a pipeline need the terminal as well.
func sharedTerminal() *terminal {
	t := &terminal{fd: int(os.Stdin.Fd()), own: unix.Getpgrp()}
	if _, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	if out, err := os.Stdout.Stat(); err == nil && out.Mode()&os.ModeNamedPipe != 0 {
		return nil
	}
	return t
}

// belongsTo reports whether group is the terminal's foreground.
func (t *terminal) belongsTo(group int) bool {
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

func (j *job) group() int { return j.cmd.Process.Pid }

// signal reaches the command and its children.
func (j *job) signal(s syscall.Signal) { _ = syscall.Kill(-j.group(), s) }

// wake lets the command go on if it was stopped.
func (j *job) wake() { j.signal(syscall.SIGCONT) }

// regain takes the terminal back from the command.
func (j *job) regain() {
	if j.terminal != nil && j.terminal.belongsTo(j.group()) {
		j.terminal.give(j.terminal.own)
	}
}

// goOn hands the terminal to the command if the shell gave it to this process.
func (j *job) goOn() {
	if j.terminal != nil && j.terminal.belongsTo(j.terminal.own) {
		j.terminal.give(j.group())
	}
}

// stopSelf does to this process's group what the terminal did to the command's, so that the shell shows a
// stopped job. It returns when the shell lets the job go on.
func (j *job) stopSelf() {
	j.regain()
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	signal.Reset(syscall.SIGTSTP)
}

// killRest kills, at the given time, what the command left behind.
func (j *job) killRest(at time.Time) {
	const look = 20 * time.Millisecond
	for time.Now().Before(at) {
		if err := syscall.Kill(-j.group(), 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		time.Sleep(min(look, time.Until(at)))
	}
	j.signal(syscall.SIGKILL)
}

// share has Ctrl-C at the terminal reach whatever started this process as well, as without a group of the
// command's own. A shell's script ends only if this process dies of the signal, too.
func (j *job) share(s syscall.Signal) {
	if s == syscall.SIGINT && j.terminal != nil && j.terminal.belongsTo(j.terminal.own) {
		dieOf(s, 0)
	}
}

// dieOf sends a signal that ends this process to pid: this process, or 0, its group.
func dieOf(s syscall.Signal, pid int) {
	signal.Reset(s)
	_ = syscall.Kill(pid, s)
	time.Sleep(time.Second) // the signal is quicker
}
