// Package network is the net between nodes and clients, and its cuts.
//
// There are two: [Kernel] gives each node a network namespace of its own and cuts with
// iptables, so that what is lost is lost as packets are lost; this needs root, and lives in a
// namespace that the program made for itself: nothing of the machine's own network is
// touched, and nothing stays behind. [Proxies] needs no rights: every ordered pair goes through a
// TCP proxy that can cut (by silence or by reset), delay and hold back each direction.
//
// It promises: [Network.Set] replaces the whole state of the net, so that a heal is the empty
// state; a cut of from → to stops what travels in that direction and nothing else.
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

// State is what is wrong with the net. The zero State is a whole net.
type State struct {
	// Cut links let nothing through.
	Cut []Link
	// Loss is the share of packets lost on every link between nodes (kernel only).
	Loss float64
	// Delay is added to everything between nodes (proxies only).
	Delay time.Duration
	// Large are links on which packets of more than [LargeBytes] bytes are lost, and small ones pass (not proxies).
	Large []Link
	// Refuse are nodes whose peer port answers new connections with a reset, as a firewall does.
	// Established connections go on (kernel only).
	Refuse []string
	// Reset makes a cut end connections instead of being silent.
	Reset bool
}

// LargeBytes is how long a packet is at least that [State.Large] loses. Nodes go down to packets of 576 bytes and a
// little.
const LargeBytes = 600

// Ports are those that every node listens on.
type Ports struct{ Client, Peer, Sentinel int }

// Network is the net of a run.
type Network interface {
	// Kind is "kernel" or "proxies".
	Kind() string
	// Listen is where the node's process listens for a purpose ("client", "peer", "sentinel", or "peer2" when
	// the node has moved).
	Listen(node, purpose string) string
	// Reach is where one place finds another. In a kernel net the answer is the same from everywhere.
	Reach(from, node, purpose string) string
	// Command prepares a process in the node's place.
	Command(node, program string, args ...string) *exec.Cmd
	// Dial connects from a place: the clients beside a node, or "" for the harness itself, which
	// is never cut off.
	Dial(ctx context.Context, from, node, purpose string) (net.Conn, error)
	// Set makes the net be in a state.
	Set(State) error
	// Close ends the net.
	Close() error
}

// NodeName is the name of the i-th node, counted from 0.
func NodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// ClientsOf is the place of the clients beside a node.
func ClientsOf(node string) string { return "c" + node[1:] }

// Nodes are the names of n nodes.
func Nodes(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = NodeName(i)
	}
	return names
}
