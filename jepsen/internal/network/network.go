// Package network is the network between nodes and clients, with its faults.
//
// There are two implementations. [Kernel] gives each node a network namespace and cuts with iptables, so that packets
// are really lost. It needs root, and uses a namespace of its own: the machine's network is not touched, and nothing is
// left behind. [Proxies] needs no rights: the traffic of each ordered pair of places passes a TCP proxy, which can cut
// (in silence or by reset), delay and hold back each direction.
//
// It promises: [Network.Set] replaces the whole state of the network, so that the empty state heals it; a cut of from →
// to stops the traffic in that direction and no other.
//
// A place is a node ("n1") or the clients beside a node ("c1"). Start reading at [Network].
package network

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Link is one direction between two places.
type Link struct{ From, To string }

// State is the set of active network faults; the zero State has none.
type State struct {
	// Cut lists links that pass no traffic.
	Cut []Link
	// Loss is the share of packets lost on every link between nodes (kernel only).
	Loss float64
	// Delay is added to all traffic between nodes (proxies only).
	Delay time.Duration
	// Large lists links that lose packets of [LargeBytes] or more (not proxies).
	Large []Link
	// Refuse lists nodes whose peer port resets new connections, as a firewall does. Established connections are kept
	// (kernel only).
	Refuse []string
	// Reset makes cuts reset connections instead of dropping traffic in silence.
	Reset bool
}

// LargeBytes is the smallest packet size, in bytes, that [State.Large] loses. Nodes reduce their packets to slightly
// more than 576 bytes.
const LargeBytes = 600

// Ports are the ports of every node.
type Ports struct{ Client, Peer, Sentinel int }

// Network is the network of a run.
type Network interface {
	// Kind is "kernel" or "proxies".
	Kind() string
	// Listen is the listen address of a node for a purpose: "client", "peer", "sentinel", or "peer2" after a move.
	Listen(node, purpose string) string
	// Reach is the address at which one place reaches another. In a kernel network it is the same from everywhere.
	Reach(from, node, purpose string) string
	// Command prepares a process of a node, in the node's namespace if it has one.
	Command(node, program string, args ...string) *exec.Cmd
	// Dial connects from a place: the clients beside a node, or "" for the harness, which is never cut off.
	Dial(ctx context.Context, from, node, purpose string) (net.Conn, error)
	// Set sets the active faults.
	Set(State) error
	// Close ends the network.
	Close() error
}

// NodeName returns the name of node i, counted from 0.
func NodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// ClientsOf returns the place of the clients beside a node.
func ClientsOf(node string) string { return "c" + node[1:] }

// Nodes returns the names of n nodes.
func Nodes(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = NodeName(i)
	}
	return names
}
