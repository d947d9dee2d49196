// Package peer is the port that nodes talk on: raft's requests, clients' requests on their way to the leader, and
// questions about who the members are, each kind as a stream of connections.
//
// It promises:
//   - a connection returned by [Layer.Accept] or [Layer.Dial] is with a node of the same cluster and another ID. The
//     node has proved the cluster secret, if there is one, and a certificate of the cluster's authority, with TLS;
//   - a dialed connection is with the node of the dialed ID, whatever its address: a node with an emptied folder gets
//     no messages for its predecessor at the same address;
//   - a removed node, and a node without a cluster, has connections of [KindMember] only. For these both sides have
//     proved the secret and the certificate, while the cluster and the ID may be any;
//   - a returned connection has no deadline;
//   - any other connection is refused within the handshake timeout, after at most a few kilobytes read, with one log
//     line (a burst of ten, then one a second). At most 128 connections are in the handshake, and 32 of a host; beyond
//     that the oldest is closed. Each host of the cluster has 32 of its own;
//   - a node keeps the 16 newest connections of a kind from another node;
//   - closing a layer closes its connections; Run returns when all goroutines have ended;
//   - all of it works in a testing/synctest bubble over package peertest.
//
// Without TLS nothing is encrypted: a secret keeps out strangers, but no attacker that can read or modify packets. The
// package neither retries nor pools connections, and does not check that a peer is alive.
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
// Package server creates the Mux, and package server/replica uses the layers. Package wire has the common format of
// their streams. Start reading at the drawing in handshake.go, then [Mux.Run].
package peer
