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
