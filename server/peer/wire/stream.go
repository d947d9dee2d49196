package wire

import (
	"context"
	"net"
	"sync"
)

// Stream is a stream of connections to and from other nodes.
type Stream interface {
	net.Listener
	DialContext(ctx context.Context, addr string) (net.Conn, error)
}

// Accept serves the connections of other nodes, each on a goroutine, until ctx
// ends: then Accept closes them and waits for their goroutines.
func Accept(ctx context.Context, from net.Listener, serve func(ctx context.Context, conn net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = from.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := from.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		conns.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			serve(ctx, conn)
		})
	}
}

// MayBe reports whether conn comes from the node of that name, as far as conn can tell: by a
// method PeerName() string.
func MayBe(conn net.Conn, name string) bool {
	peer, ok := conn.(interface{ PeerName() string })
	return !ok || peer.PeerName() == name
}
