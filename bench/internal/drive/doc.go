// Package drive lets another program run a workload. A client of etcd or ZooKeeper comes
// with modules that this module should not depend on, so each is a small program in a module of
// its own, under bench/. It links the same workloads, generator and recorder as the benchmark, so that
// its figures are made alike, and adds only its clients.
//
// The caller writes one [Request] to the program's standard input and reads one [Reply] from its
// standard output; both are JSON. Start reading at [Run] for the caller's side and at
// [Serve] for the program's.
package drive
