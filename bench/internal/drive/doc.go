// Package drive lets another program run a workload. A client of etcd or ZooKeeper comes
// with modules that this module should not depend on, so each is a small program in a module of
// its own, under bench/. The program links the same workloads, generator and recorder as the benchmark, so that
// the figures are made alike, and adds only clients.
//
// The caller writes a [Request] to the program's standard input and reads a [Reply] from the
// standard output; both are JSON. Start reading at [Run] for the caller's side and at
// [Serve] for the program's.
package drive
