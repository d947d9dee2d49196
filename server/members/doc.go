// Package members has the words for the members of a cluster: who they are, and where a node dials them.
//
// It promises:
//   - an ID is minted once, with a node's folder: an emptied folder is another member, whatever its name;
//   - an ID tells the name, and there is no other table of names;
//   - a [Configuration] is a value: nothing changes it after it was made;
//   - [Addresses] has an address for every member, and holds a bounded number of others.
//
// The package does no I/O, and knows neither raft nor connections. A [Configuration] comes from raft's log (package
// raftnode); package peer looks into [Addresses] at each dial.
//
// # Lock order
//
// The lock of [Addresses] is a leaf.
package members
