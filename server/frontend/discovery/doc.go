// Package discovery answers clients that look for the leader, for other nodes, or for what the cluster is: CLUSTER for
// clients of Redis Cluster, SENTINEL for clients of Sentinel, ROLE and the role in HELLO and INFO, and RAFT.STATUS and
// RAFT.MEMBERS for operators.
//
// The package promises:
//   - a reply is made from one status of this node, so its parts agree;
//   - all nodes with the same status and leader give the same IDs and the same master;
//   - without a leader the last one is named, as clients refuse a replica without a master.
//
// A [Directory] gets the status as a function, and the leadership by [Directory.SetLeadership]. It knows no
// connections, starts no goroutine, and may be asked by any number of goroutines.
//
// Start reading at directory.go, then cluster.go. ../DESIGN.md says which node is the master, and why.
package discovery
