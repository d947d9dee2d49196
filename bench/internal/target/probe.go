package target

import (
	"context"
	"net/http"
	"time"
)

// Probe is a client that asks one server for locks, without a library: it is what
// failovers are watched with.
type Probe struct {
	acquire func(ctx context.Context, key, token string) (bool, error)
	close   func()
}

// etcdProbeTimeout ends a question that waits for a leader which is gone: etcd lets the question wait for seven
// seconds, and answers at once a question that is asked again when the new leader is there.
const etcdProbeTimeout = 100 * time.Millisecond

// Probe opens a probe at addr. Probe may succeed at a server that is not there: then
// [Probe.Acquire] errs.
func (t Target) Probe(ctx context.Context, addr string, o Options) (*Probe, error) {
	if t.Kind == Etcd || t.Kind == EtcdMutex {
		transport := &http.Transport{}
		client := &http.Client{Transport: transport, Timeout: etcdProbeTimeout}
		return &Probe{
			acquire: func(ctx context.Context, key, token string) (bool, error) {
				return etcdAcquire(ctx, client, addr, key, token)
			},
			close: transport.CloseIdleConnections,
		}, nil
	}
	o.Library, o.Wait = Raw, t.Wait
	c, err := dialOne(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return &Probe{acquire: c.Acquire, close: func() { _ = c.Close() }}, nil
}

// Acquire takes a lock, or reports that another owner has it.
func (p *Probe) Acquire(ctx context.Context, key, token string) (bool, error) {
	return p.acquire(ctx, key, token)
}

// Close ends the probe.
func (p *Probe) Close() { p.close() }
