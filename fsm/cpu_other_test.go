//go:build !unix

package fsm

// cpuNanos is unknown on this platform.
func cpuNanos() int64 { return 0 }
