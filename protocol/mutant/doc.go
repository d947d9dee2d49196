// Package mutant has the switches of servers that are wrong on purpose. The partition tests build such a server and
// must find it invalid (jepsen/README.md). A release has none of this: without the build tag mutants every switch is a
// constant, and the compiler drops what it guards. With the tag, HOLDFAST_MUTANT in the environment turns one switch
// on.
package mutant
