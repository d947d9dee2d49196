package main

import (
	"fmt"
	"net"
	"os"
)

// notify tells the service manager what the process does: "READY=1", "STOPPING=1". See
// sd_notify(3). Without NOTIFY_SOCKET there is no service manager, and notify does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
