// Package peers starts what is measured: redis-server in the ways that people run it
// for locks, etcd, ZooKeeper, and Holdfast, all on loopback, each with its own folder.
//
// It promises that every durable peer really syncs to the disk that was named, that a
// peer that does not come up is left out with the end of its log, and that [Peers.Stop]
// leaves neither a process nor a file. redis-server comes from the PATH; Holdfast is built
// from this tree, and what etcd and ZooKeeper need from the modules under bench/ that have their names,
// into the user's cache.
//
// Start reading at [Rows].
package peers
