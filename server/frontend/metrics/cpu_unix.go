//go:build unix

package metrics

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time of this process since its start.
func cpuTime() (system, user time.Duration) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, 0
	}
	return time.Duration(usage.Stime.Nano()), time.Duration(usage.Utime.Nano())
}
