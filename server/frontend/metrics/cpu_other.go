//go:build !unix

package metrics

import "time"

// cpuTime is not known on this system.
func cpuTime() (system, user time.Duration) { return 0, 0 }
