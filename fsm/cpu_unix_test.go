//go:build unix

package fsm

import "syscall"

// cpuNanos is the CPU time that the process has used, in nanoseconds.
func cpuNanos() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
