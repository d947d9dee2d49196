// Command zookeeper runs a workload against ZooKeeper with the client github.com/go-zookeeper/zk, as the driver of
// package drive. It is a separate module, so that nothing else depends on that client; the servers are Debian's
// package.
//
// Start reading at [ephemeral].
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast/holdfast/bench/internal/drive"
	"github.com/holdfast/holdfast/bench/internal/target"
)

func main() {
	target.Register(target.ZooKeeper, dialEphemeral)
	target.Register(target.ZooKeeperLock, dialLock)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := drive.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "zookeeper:", err)
		os.Exit(1)
	}
}

// root is the parent of all nodes.
const root = "/bench"

// session is a client with a ZooKeeper session, which owns the client's nodes.
type session struct{ c *zk.Conn }

// quiet drops the library's log, which would disturb the driver's output.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func dial(ctx context.Context, addr string, o target.Options) (session, error) {
	c, events, err := zk.Connect([]string{addr}, o.TTL, zk.WithLogger(quiet{}))
	if err != nil {
		return session{}, fmt.Errorf("reach %s: %w", addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for {
		select {
		case e := <-events:
			if e.State != zk.StateHasSession {
				continue
			}
			if _, err := c.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				c.Close()
				return session{}, fmt.Errorf("make %s: %w", root, err)
			}
			return session{c}, nil
		case <-ctx.Done():
			c.Close()
			return session{}, fmt.Errorf("get a session from %s: %w", addr, context.Cause(ctx))
		}
	}
}

func path(key string) string { return root + "/" + key }

// Renew checks that the node exists: the library keeps the session alive.
func (s session) Renew(_ context.Context, key, _ string) (bool, error) {
	there, _, err := s.c.Exists(path(key))
	return there, err
}

// Read is a read after a sync, without which it may be stale.
func (s session) Read(_ context.Context, key string) (string, error) {
	if _, err := s.c.Sync(path(key)); err != nil {
		return "", err
	}
	data, _, err := s.c.Get(path(key))
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	return string(data), err
}

// createsAtATime is the number of nodes created in one transaction.
const createsAtATime = 100

// Fill creates persistent nodes.
func (s session) Fill(_ context.Context, n int, key func(int) string) error {
	for from := 0; from < n; from += createsAtATime {
		var creates []any
		for i := from; i < min(from+createsAtATime, n); i++ {
			creates = append(creates, &zk.CreateRequest{
				Path: path(key(i)), Data: []byte("0123456789abcdef"),
				Acl: zk.WorldACL(zk.PermAll),
			})
		}
		if _, err := s.c.Multi(creates...); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the session, which deletes its nodes.
func (s session) Close() error {
	s.c.Close()
	return nil
}

// ephemeral acquires a lock by creating a node that ends with the session.
type ephemeral struct{ session }

func dialEphemeral(ctx context.Context, addr string, o target.Options) (target.Client, error) {
	s, err := dial(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return ephemeral{s}, nil
}

// Acquire creates the node if it is absent.
func (e ephemeral) Acquire(_ context.Context, key, token string) (bool, error) {
	_, err := e.c.Create(path(key), []byte(token), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return false, nil
	}
	return err == nil, err
}

// Release deletes the node without comparing its owner, since only the holder releases.
func (e ephemeral) Release(_ context.Context, key, _ string) (bool, error) {
	err := e.c.Delete(path(key), -1)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// lock acquires locks by the recipe: a queue of sequential nodes, in which each client waits for the node before its
// own. Acquire waits.
type lock struct {
	session
	held map[string]*zk.Lock
}

func dialLock(ctx context.Context, addr string, o target.Options) (target.Client, error) {
	s, err := dial(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return lock{session: s, held: make(map[string]*zk.Lock)}, nil
}

// Acquire waits in the queue.
func (l lock) Acquire(_ context.Context, key, token string) (bool, error) {
	one := zk.NewLock(l.c, path("lock:"+key), zk.WorldACL(zk.PermAll))
	if err := one.LockWithData([]byte(token)); err != nil {
		return false, err
	}
	l.held[key] = one
	return true, nil
}

// Release deletes the client's node.
func (l lock) Release(_ context.Context, key, _ string) (bool, error) {
	one := l.held[key]
	if one == nil {
		return false, nil
	}
	delete(l.held, key)
	return true, one.Unlock()
}
