package peer

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// knocking is a connection that has an address and is of no use.
type knocking struct {
	net.Conn
	from address
}

func (k knocking) RemoteAddr() net.Addr { return k.from }
func (k knocking) Close() error         { return nil }

// TestOldestOfItsOwnHost: a newcomer's host may be the oldest stranger's, and have no other connection.
func TestOldestOfItsOwnHost(t *testing.T) {
	hs := newHandshakes((&members.Addresses{}).Addrs)
	begin := func(host int) *handshake { return hs.begin(knocking{from: address(fmt.Sprintf("10.0.0.%d:1", host))}) }
	all := []*handshake{begin(0)}
	for host := 1; host < maxHandshakes; host++ {
		all = append(all, begin(host))
	}
	all = append(all, begin(0))
	require.True(t, all[0].dropped)
	for i, h := range all {
		require.Equal(t, i == 0, hs.end(h))
	}
	require.Empty(t, hs.hosts)
	require.Zero(t, hs.strangers.Len())
}

// TestKnownHostsAreBounded: of a cluster's own hosts that were met, not given.
func TestKnownHostsAreBounded(t *testing.T) {
	hs := newHandshakes((&members.Addresses{}).Addrs)
	for host := range 2 * maxKnown {
		hs.know(knocking{from: address(fmt.Sprintf("10.0.%d.%d:1", host/250, host%250))})
	}
	require.Len(t, hs.own, maxKnown)
}
