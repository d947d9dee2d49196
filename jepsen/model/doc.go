// Package model has TLA+ models of Holdfast's changes to Raft, of its sessions and of its incarnations. It consists of
// tests, which run TLC. README.md describes the models, and how to read a counterexample.
package model
