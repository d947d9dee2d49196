//go:build !trace

package raftnode

// traced is p: only the build tag trace has a node write down what it does.
func (n *Node) traced(p parts) parts { return p }
