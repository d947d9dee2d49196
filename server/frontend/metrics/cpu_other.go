//go:build !unix

package metrics

import "time"

// cpuTime returns 0: the time is unknown on this system.
func cpuTime() (system, user time.Duration) { return 0, 0 }
