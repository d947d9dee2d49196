package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// Proxies is a network of TCP proxies on loopback, one for each purpose and ordered pair of places.
type Proxies struct {
	listen map[string]string // the process's own listen address, by node and purpose

	mu      sync.Mutex
	proxies map[proxyKey]*fleet.Relay
	state   State
	// changed is closed and replaced whenever the state changes.
	changed chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
}

// proxyKey names the proxy that forwards connections from one place to a node.
type proxyKey struct{ from, to, purpose string }

// NewProxies chooses free ports for n nodes and starts all proxies.
func NewProxies(n int, purposes ...string) (*Proxies, error) {
	addrs, err := fleet.Reserve(n * len(purposes))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxies{
		listen: map[string]string{}, proxies: map[proxyKey]*fleet.Relay{},
		changed: make(chan struct{}), ctx: ctx, stop: stop,
	}
	nodes := Nodes(n)
	for _, purpose := range purposes {
		for _, to := range nodes {
			addr := addrs[len(p.listen)]
			p.listen[to+"/"+purpose] = addr
			for _, node := range nodes {
				for _, from := range []string{node, ClientsOf(node)} {
					if from == to || (strings.HasPrefix(purpose, "peer") && from != node) {
						continue
					}
					if err := p.start(proxyKey{from, to, purpose}, addr); err != nil {
						p.Close()
						return nil, err
					}
				}
			}
		}
	}
	return p, nil
}

// start starts a proxy. While the direction is cut, the proxy does not connect and holds back the first bytes, like
// unanswered packets.
func (p *Proxies) start(key proxyKey, target string) error {
	x, err := fleet.NewRelay(func(ctx context.Context) (net.Conn, fleet.Carry, error) {
		if !p.await(key.from, key.to) {
			return nil, nil, errCut
		}
		var d net.Dialer
		out, err := d.DialContext(ctx, "tcp", target)
		return out, func(to, from net.Conn) error {
			if to == out {
				return p.pump(to, from, key.from, key.to)
			}
			return p.pump(to, from, key.to, key.from)
		}, err
	})
	if err != nil {
		return fmt.Errorf("start proxy: %w", err)
	}
	p.proxies[key] = x
	return nil
}

// Kind implements [Network].
func (p *Proxies) Kind() string { return "proxies" }

// Listen implements [Network].
func (p *Proxies) Listen(node, purpose string) string { return p.listen[node+"/"+purpose] }

// Reach implements [Network].
func (p *Proxies) Reach(from, node, purpose string) string {
	if x := p.proxies[proxyKey{from, node, purpose}]; x != nil {
		return x.Addr()
	}
	return p.Listen(node, purpose)
}

// Command implements [Network].
func (p *Proxies) Command(_, program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

// Dial implements [Network].
func (p *Proxies) Dial(ctx context.Context, from, node, purpose string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.Reach(from, node, purpose))
}

// Set implements [Network].
func (p *Proxies) Set(s State) error {
	p.mu.Lock()
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if s.Reset {
		for key, x := range p.proxies {
			if s.cuts(key.from, key.to) || s.cuts(key.to, key.from) {
				x.End()
			}
		}
	}
	return nil
}

func (s State) cuts(from, to string) bool { return slices.Contains(s.Cut, Link{from, to}) }

// way returns the state of a direction, and a channel that is closed when it may have changed.
func (p *Proxies) way(from, to string) (cut, reset bool, delay time.Duration, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if from[0] == 'n' && to[0] == 'n' {
		delay = p.state.Delay
	}
	return p.state.cuts(from, to), p.state.Reset, delay, p.changed
}

// errCut ends a connection of a direction that is cut by reset, or of a network that ends.
var errCut = errors.New("cut")

// await waits while a direction is cut in silence; false means that it is cut by reset, or that the network ends.
func (p *Proxies) await(from, to string) bool {
	for {
		cut, reset, _, changed := p.way(from, to)
		if !cut {
			return p.ctx.Err() == nil
		}
		if reset {
			return false
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return false
		}
	}
}

// pump copies one direction. Data read before a cut is forwarded after the cut, as a sender's kernel would send it
// again.
func (p *Proxies) pump(dst io.Writer, src io.Reader, from, to string) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, _, delay, _ := p.way(from, to); delay > 0 {
				select {
				case <-time.After(delay):
				case <-p.ctx.Done():
				}
			}
			if !p.await(from, to) {
				return errCut
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// Close implements [Network].
func (p *Proxies) Close() error {
	p.stop()
	var errs []error
	for _, x := range p.proxies {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
