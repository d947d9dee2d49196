// Package protocoltest helps the tests of other packages: protocoltest makes random command lines
// and requests, plays transcripts, and starts a real redis-server to compare with.
//
// The package promises that the argument grammar of a command's row allows every line of
// [Generator.Line]: the row's arity holds, the keys are where the row says, the count of keys is
// right, and the numbers are in the range in which the command takes them. So a handler never
// answers such a line with a syntax error, but any other error may be the answer (WRONGTYPE, no
// such key).
//
// The package does not promise that every line which the grammar allows is made, and makes no lines
// that are wrong.
package protocoltest
