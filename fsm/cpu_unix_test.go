//go:build unix

package fsm

import "syscall"

// cpuNanos returns the CPU time of the process in nanoseconds.
func cpuNanos() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
