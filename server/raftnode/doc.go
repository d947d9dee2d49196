// Package raftnode wraps hashicorp/raft: its transport, its log and its stores. A [Node] takes entries
// from a leader's proposer, and gives committed ones to a [Machine].
package raftnode
