package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the kernel may let a thread of this process sleep longer than
// it asked for. Nothing in a node is timed more finely; see prctl(2), PR_SET_TIMERSLACK.
const timerSlack = 5 * time.Millisecond

// setTimerSlack has every thread of this process sleep with timerSlack, where Linux's
// default is 50 µs. It is for one thread: Go's monitor (sysmon in runtime/proc.go), which
// looks every 20 µs for threads that are in a system call as long as the process does
// anything. A node that syncs its log is in one most of the time, so these looks were
// more than half of all switches between threads, and a quarter of a follower's CPU.
//
// The slack is a thread's own and threads inherit it, but the monitor starts before main
// does. So the process executes itself anew, once, with the same PID. Where that is not possible it
// goes on as it is, which costs only speed; so does one that was started with a slack that is big
// enough already (systemd: TimerSlackNSec=).
//
// It must be the first thing that main does.
func setTimerSlack() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != unix.Getpid() {
		return // what the kernel keeps for the first thread alone, such as PR_SET_PDEATHSIG, would be lost
	}
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(slack) >= timerSlack {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) == nil {
		_ = syscall.Exec(self, os.Args, os.Environ())
	}
}
