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

// forwarded are the signals that this process forwards to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
	syscall.SIGTSTP,
}

// job is the command as a process group.
type job struct {
	cmd      *exec.Cmd
	terminal *terminal           // the terminal that the command shares, or nil
	stopped  chan syscall.Signal // the signals that stopped the command
	done     chan struct{}       // closed when the command has ended
	how      syscall.WaitStatus  // valid after done
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
	if errors.Is(err, syscall.ENOEXEC) { // a script without an interpreter is run by the shell, like execvp(3)
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
		signal.Ignore(syscall.SIGTTOU) // lets this process write and take the terminal back in the background
	}
	go j.wait()
	return nil
}

// wait reports stops and the end of the command. os/exec does not report stops.
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

// mayStop reports whether this process stops with the command: after Ctrl-Z, or a read from the terminal in the
// background. It does not stop after a SIGSTOP: the sender signals the command alone, and can continue it.
func (j *job) mayStop(by syscall.Signal) bool { return j.terminal != nil && by != syscall.SIGSTOP }

// status returns the command's exit status as shells do.
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

// terminal is the command's controlling terminal. The kernel stops a process that reads from it outside its foreground
// group.
type terminal struct {
	fd  int
	own int // this process's group
}

// sharedTerminal returns nil if the command needs no terminal, or if other processes of a pipeline need it, too.
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

// belongsTo reports whether group is the terminal's foreground group.
func (t *terminal) belongsTo(group int) bool {
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

func (j *job) group() int { return j.cmd.Process.Pid }

// signal signals the command and its children.
func (j *job) signal(s syscall.Signal) { _ = syscall.Kill(-j.group(), s) }

// wake continues the command if it was stopped.
func (j *job) wake() { j.signal(syscall.SIGCONT) }

// regain takes the terminal back from the command.
func (j *job) regain() {
	if j.terminal != nil && j.terminal.belongsTo(j.group()) {
		j.terminal.give(j.terminal.own)
	}
}

// goOn gives the terminal to the command if this process is in the foreground, and continues the command.
func (j *job) goOn() {
	if j.terminal != nil && j.terminal.belongsTo(j.terminal.own) {
		j.terminal.give(j.group())
	}
}

// stopSelf stops this process's group, as the terminal stopped the command's, so that the shell shows a stopped job. It
// returns when the shell continues the job.
func (j *job) stopSelf() {
	j.regain()
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	signal.Reset(syscall.SIGTSTP)
}

// killRest kills the command's remaining children at the given time.
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

// share sends Ctrl-C to the processes that would have got it without a group for the command, such as this process's
// parent. A shell script ends only if this process dies of the signal, too.
func (j *job) share(s syscall.Signal) {
	if s == syscall.SIGINT && j.terminal != nil && j.terminal.belongsTo(j.terminal.own) {
		dieOf(s, 0)
	}
}

// dieOf sends a signal that ends this process to pid, which is this process, or 0 for its group.
func dieOf(s syscall.Signal, pid int) {
	signal.Reset(s)
	_ = syscall.Kill(pid, s)
	time.Sleep(time.Second) // the signal comes first
}
