//go:build !unix

package fsm

// cpuNanos is not known here.
func cpuNanos() int64 { return 0 }
