package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is the time by which the kernel may prolong sleeps of this process's threads: see prctl(2),
// PR_SET_TIMERSLACK. 5 ms doubled the p99.9 of an acquire, as Go's idle threads overslept; 1 ms lowered it.
const timerSlack = time.Millisecond

// slackIsSet is the variable by which the process knows that it has executed itself.
const slackIsSet = "HOLDFAST_TIMER_SLACK_IS_SET"

// setTimerSlack sets the timer slack of all threads of this process to timerSlack, from Linux's default of 50 µs. It
// matters for one thread, Go's monitor (sysmon), which wakes every 20 µs while the process is active, to find threads
// in system calls. In a node, which syncs its log most of the time, these wake-ups were more than half of all context
// switches, and a quarter of a follower's CPU.
//
// The monitor starts before main, and a thread inherits its slack at its start. So the process executes itself again,
// with the same PID. If execve fails, the process runs on, only slower. It does not execute itself if its slack is large
// enough already, by systemd's TimerSlackNSec, or if it has none, as under a real-time policy.
//
// main must call it first.
func setTimerSlack() {
	if os.Getenv(slackIsSet) != "" {
		_ = os.Unsetenv(slackIsSet)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != unix.Getpid() {
		return // executing would lose attributes of the first thread, such as PR_SET_PDEATHSIG
	}
	if slack := readSlack(); slack == 0 || slack >= timerSlack {
		return
	}
	self, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	if readSlack() >= timerSlack {
		_ = syscall.Exec(self, os.Args, append(os.Environ(), slackIsSet+"=1"))
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // to the default
}

// readSlack returns this thread's slack, 0 if it has none or it is unknown.
func readSlack() time.Duration {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(slack)
}
