// Command go runs stock Go clients and lock libraries (go-redis, rueidis, redsync,
// bsm/redislock) against three nodes of Holdfast. It is a module of its own, so that
// Holdfast does not depend on what it is tested with.
//
// Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the
// leader and prints the address it had. Start reading at main.go.
package main
