package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// forwarded are the signals that must not end this process before the command has ended.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// job is the command and its children as a job object of Windows, which ends with this process.
type job struct {
	cmd     *exec.Cmd
	object  windows.Handle
	stopped chan syscall.Signal // always empty: commands are not stopped here
	done    chan struct{}       // closed when the command has ended
}

func newJob(path string, words, env []string) *job {
	cmd := &exec.Cmd{Path: path, Args: words, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return &job{cmd: cmd, done: make(chan struct{})}
}

func (j *job) start() (err error) {
	if j.object, err = windows.CreateJobObject(nil, nil); err != nil {
		return err
	}
	if err := j.limit(windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
		return err
	}
	if err := j.cmd.Start(); err != nil {
		return err
	}
	pid := uint32(j.cmd.Process.Pid)
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err == nil {
		err = windows.AssignProcessToJobObject(j.object, process)
		_ = windows.CloseHandle(process)
	}
	if err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) { // the command may have ended already
		_ = j.cmd.Process.Kill()
		return err
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.done)
	}()
	return nil
}

func (j *job) limit(flags uint32) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = flags
	_, err := windows.SetInformationJobObject(j.object, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// status returns the command's exit status. The command's remaining children continue, as on Unix.
func (j *job) status() error {
	_ = j.limit(0)
	if status := j.cmd.ProcessState.ExitCode(); status != 0 {
		return exitStatus{status: status}
	}
	return nil
}

// signal kills the command and its children: Windows cannot ask a process to end. Ctrl-C has reached the command
// already, at the same console.
func (j *job) signal(s syscall.Signal) {
	if s != syscall.SIGINT {
		_ = windows.TerminateJobObject(j.object, 1)
		_ = j.cmd.Process.Kill() // in case it is not part of the object
	}
}

func (j *job) killRest(time.Time)        { j.signal(syscall.SIGKILL) }
func (*job) wake()                       {}
func (*job) regain()                     {}
func (*job) goOn()                       {}
func (*job) stopSelf()                   {}
func (*job) mayStop(syscall.Signal) bool { return false }

// dieOf does nothing here. On Unix a shell checks how its child has died.
func dieOf(syscall.Signal, int) {}
