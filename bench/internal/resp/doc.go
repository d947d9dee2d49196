// Package resp is a client's connection without a library: [protocol.Conn] with one deadline for
// each exchange. A client library takes ten times the CPU of the load generator's machine, and does
// not pipeline.
//
// It promises that an error that the server sent comes back as a [*ReplyError], and so can be told from a
// broken connection.
package resp
