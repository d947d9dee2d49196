// Package peer is the port that nodes talk on: raft's requests, clients' requests on their way to the leader, and
// questions about who the members are, each kind as a stream of connections.
//
// It promises:
//   - a connection that comes out of [Layer.Accept] or [Layer.Dial] is with a node of
//     the same cluster, of another ID than this node's, that knows the cluster secret if there is
//     one, and whose certificate comes from the cluster's authority if there is TLS;
//   - a dialed connection is with the node of the ID that was dialed, wherever that node is: a node with an
//     emptied folder at the old address gets nothing that was meant for the node that it was;
//   - a node that is known to be removed, and a node without a cluster, has connections of [KindMember] alone. Over
//     these both sides have proved the secret and the certificate, and only that: the cluster and the ID may be any;
//   - the connection has no deadline left from the handshake;
//   - any other connection is refused within the handshake timeout, with one log line
//     (at most ten at once, then one a second), after at most a few kilobytes read;
//     128 such connections at most wait at a time, 32 of a host, and beyond that the oldest is given up; hosts of the
//     cluster have 32 each for themselves;
//   - a node has at most 16 connections of a kind that another node made, the newest;
//   - closing a layer closes its connections; Run returns when all goroutines have ended;
//   - all of it works in a testing/synctest bubble over package peertest.
//
// Without TLS nothing is encrypted: a secret alone keeps strangers out, not
// an attacker that can read or rewrite the network's packets. The package does not retry, pool or
// check that a peer is alive: that is raft's and the forwarder's business.
//
// Goroutines:
//
//	| what                      | started by | ends with                          |
//	|---------------------------|------------|------------------------------------|
//	| the accept loop           | Run's caller | its context, or a failed listener |
//	| one per handshake         | Run        | handover, refusal, timeout, context |
//
// Established connections have none. Lock order: none of handshakes.mu, Layer.mu and
// the limit of log lines is held while another is taken, or over I/O.
//
// package server makes the Mux; package server/replica uses the layers. Package wire is what their streams
// have in common. Start reading at the drawing in handshake.go, then [Mux.Run].
package peer
