//go:build !unix

package server

import "net"

// dialPeer connects to another node; small segments are for other systems.
var dialPeer = new(net.Dialer).DialContext
