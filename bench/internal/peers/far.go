package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// distance delays traffic between the servers of a cluster by half a round trip, in order and at any rate. Traffic of
// clients is not delayed.
//
// A relay listens for each server's peer port, and the other servers dial the relay.
type distance struct {
	oneWay atomic.Int64 // nanoseconds
	relays []*fleet.Relay
}

// behind returns the address under which the other servers reach the one that listens at addr.
func (d *distance) behind(addr string) (string, error) {
	r, err := fleet.NewRelay(func(context.Context) (net.Conn, fleet.Carry, error) {
		// TCP's handshake takes a round trip before any data.
		time.Sleep(2 * d.delay())
		out, err := net.Dial("tcp", addr)
		return out, d.carry, err
	})
	if err != nil {
		return "", err
	}
	d.relays = append(d.relays, r)
	return r.Addr(), nil
}

func (d *distance) delay() time.Duration { return time.Duration(d.oneWay.Load()) }

// piece is the bytes of one read with the time of their arrival.
type piece struct {
	bytes []byte
	due   time.Time
}

// underWay is the maximum number of pieces in transit in one direction.
const underWay = 1 << 14

// carry forwards one direction until it ends.
func (d *distance) carry(to, from net.Conn) error {
	pieces, read := make(chan piece, underWay), make(chan error, 1)
	go func() {
		defer close(pieces)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(d.delay())}
			}
			if err != nil {
				read <- err
				return
			}
		}
	}()
	var failed error
	for p := range pieces { // to the end, so that the reader ends
		time.Sleep(time.Until(p.due))
		if failed == nil {
			if _, failed = to.Write(p.bytes); failed != nil {
				from.Close()
			}
		}
	}
	if err := <-read; !errors.Is(err, io.EOF) {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return failed
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return to.Close()
}

func (d *distance) close() {
	for _, r := range d.relays {
		r.Close()
	}
}
