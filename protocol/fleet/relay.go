package fleet

import (
	"context"
	"net"
	"sync"
)

// Relay is a port of loopback that carries each connection to another address.
type Relay struct {
	listener net.Listener
	connect  Connect
	wg       sync.WaitGroup

	mu  sync.Mutex
	ctx context.Context // of the connections that come
	end context.CancelFunc
}

// Connect makes the other side of a connection that has come to a relay, and returns how to carry its directions.
type Connect func(context.Context) (out net.Conn, carry Carry, err error)

// Carry carries one direction until that ends. Nil lets the other direction go on, an error ends it, too.
type Carry func(to, from net.Conn) error

// NewRelay starts a relay, which listens until Close. Each connection has goroutines of its own.
func NewRelay(connect Connect) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, connect: connect}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.wg.Go(r.accept)
	return r, nil
}

// Addr is the address of the port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// End ends the connections that there are.
func (r *Relay) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.ctx, r.end = context.WithCancel(context.Background())
}

// Close ends the relay and its connections. It returns when no connection is left.
func (r *Relay) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	r.end()
	r.mu.Unlock()
	r.wg.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		ctx, end := context.WithCancel(r.ctx)
		r.mu.Unlock()
		r.wg.Go(func() { r.join(ctx, end, in) })
	}
}

// join carries a connection until both directions have ended.
func (r *Relay) join(ctx context.Context, end context.CancelFunc, in net.Conn) {
	defer end()
	defer in.Close()
	out, carry, err := r.connect(ctx)
	if err != nil {
		return
	}
	defer out.Close()
	context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{out, in}, {in, out}} {
		both.Go(func() {
			if carry(way[0], way[1]) != nil {
				end()
			}
		})
	}
	both.Wait()
}
