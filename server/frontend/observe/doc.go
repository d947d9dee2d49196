// Package observe shows operators what clients do: the commands that took long (SLOWLOG, LATENCY), and every command as
// it comes (MONITOR).
//
// The package promises:
//   - no password is kept or shown;
//   - what is kept is bounded, whatever clients send: entries by slowlog-max-len, each by Redis's limits of arguments;
//   - a node without a monitor pays one atomic load for a command, and a command that is not slow pays two.
//
// A connection gives the [Slowlog] the command's row, the arguments and the time, and is itself a [Monitor]: the
// package knows no connections, and starts no goroutine. All methods may be called by any goroutine.
//
// Locks: Slowlog.mu guards what is kept, Monitors.mu the clients of MONITOR. Monitors.mu is held while messages are
// posted, so it comes before the locks of a connection.
//
// Start reading at slowlog.go, then monitors.go.
package observe
