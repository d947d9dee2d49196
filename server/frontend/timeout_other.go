//go:build !linux

package frontend

import (
	"net"
	"time"
)

// setUserTimeout does nothing: on this system only the probes detect a lost client, unless bytes are unacknowledged.
func setUserTimeout(*net.TCPConn, time.Duration) {}
