package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the kernel may let a thread of this process sleep longer than
// it asked for: see prctl(2), PR_SET_TIMERSLACK. With more, threads of Go that look for work oversleep: 5 ms
// doubled the p99.9 of an acquire, 1 ms lowered it.
const timerSlack = time.Millisecond

// slackIsSet tells the process that it has executed itself.
const slackIsSet = "HOLDFAST_TIMER_SLACK_IS_SET"

// setTimerSlack has every thread of this process sleep with timerSlack, where Linux's
// default is 50 µs. It is for one thread: Go's monitor (sysmon), which
// looks every 20 µs for threads that are in a system call as long as the process does
// anything. A node that syncs its log is in one most of the time, so these looks were
// more than half of all switches between threads, and a quarter of a follower's CPU.
//
// The slack is a thread's own and threads inherit it, but the monitor starts before main
// does. So the process executes itself anew, once, with the same PID. Where that is not possible it
// goes on as it is, which costs only speed; so does one that was started with a slack that is big
// enough already (by systemd's TimerSlackNSec), or with none, as under a real-time policy.
//
// It must be the first thing that main does.
func setTimerSlack() {
	if os.Getenv(slackIsSet) != "" {
		_ = os.Unsetenv(slackIsSet)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != unix.Getpid() {
		return // what the kernel keeps for the first thread alone, such as PR_SET_PDEATHSIG, would be lost
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

// readSlack is this thread's; 0 if it has none or cannot be told.
func readSlack() time.Duration {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(slack)
}
