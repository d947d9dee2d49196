// Command holdfast is the operators' side of Holdfast: it turns flags and
// environment into a server.Config, runs a node (serve), runs three nodes for
// a try (demo), runs a command under a lock (lock, locks), copies keys from a Redis
// server (import), and prints the documents that derive from tables (docs).
//
// It promises that a wrong flag, a port in use, or a data folder of another node
// gives one clear line and a non-zero exit: 2 for bad usage, 1 for the rest; `holdfast
// lock` exits as its command does. A
// command refuses the flags that have no effect there. On Linux serve executes
// itself once, see timerslack_linux.go. A node's behaviour is in package server.
// Start reading at main.go, then flags.go, where one table makes flags,
// environment and docs; for `holdfast lock` at lock.go and guard.go.
package main
