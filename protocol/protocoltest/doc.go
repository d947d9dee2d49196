// Package protocoltest helps the tests of other packages: it makes random command lines and
// requests, plays transcripts, and starts a real redis-server to compare with.
//
// It promises that a line of [Generator.Line] is one that the argument grammar of
// the command's row allows: the row's arity holds, its keys are where the row says,
// its count of keys is right, and its numbers are in the range in which the command
// takes them. So a handler never answers such a line with a syntax error; it may
// answer with any other (WRONGTYPE, no such key).
//
// It does not promise that every line which the grammar allows is made, and it
// makes no lines that are wrong.
package protocoltest
