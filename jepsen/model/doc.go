// Package model has TLA+ models of what Holdfast changes in Raft, of its sessions and of its incarnations: there are
// only tests, which run TLC. README.md says what is modelled, and how to read a counterexample.
package model
