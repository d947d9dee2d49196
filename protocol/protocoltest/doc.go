// Package protocoltest helps tests of other packages to make command lines, and to
// compare with a real redis-server.
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
