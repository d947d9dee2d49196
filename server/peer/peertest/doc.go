// Package peertest is a network in memory with the faults of a real one, for
// tests of nodes in virtual time.
//
// It promises:
//   - connections that behave as TCP does where a program can tell: buffered up
//     to a limit, ordered, half-closed in either order, with deadlines, with
//     resets and refused dials;
//   - partitions without a notice: bytes stop arriving, writers notice only
//     when buffers are full, dials hang until their context ends. One way or both;
//     existing connections are affected too. After a partition heals, bytes that
//     were under way arrive late, as TCP's retransmissions do: a request that an
//     old leader sent minutes ago is one of the faults worth testing;
//   - no goroutine and no timer of its own outlives a call, and everything that
//     waits, waits on channels: it works in a testing/synctest bubble.
//
// Nothing is lost, reordered or doubled within a connection: TCP does not.
// A limit on the bytes a second is each connection's own: connections do not share a bandwidth.
//
// A Network must be made inside the bubble that it is for. Start reading at [Network].
package peertest
