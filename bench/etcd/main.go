// Command etcd is the benchmark's peer "etcd", in its own module so that nothing else depends on etcd's modules. `etcd
// serve FLAGS` is etcd's server with its own flags; without arguments the program runs a workload with etcd's client,
// as the driver of package drive.
//
// Start reading at [txn].
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"

	"github.com/holdfast/holdfast/bench/internal/drive"
	"github.com/holdfast/holdfast/bench/internal/target"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		etcdmain.Main(append(os.Args[:1], os.Args[2:]...))
		return
	}
	target.Register(target.Etcd, dialTxn)
	target.Register(target.EtcdMutex, dialMutex)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := drive.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

// session is a client with a lease that is kept alive and holds the session's locks. A lease for each lock would cost
// etcd two more log entries per lock.
type session struct {
	c     *clientv3.Client
	lease *concurrency.Session
	o     target.Options
}

func dial(ctx context.Context, addr string, o target.Options) (*session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: o.Timeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", addr, err)
	}
	ttl := max(1, int(math.Ceil(o.TTL.Seconds())))
	// The session outlives ctx until Close.
	lease, err := concurrency.NewSession(c, concurrency.WithTTL(ttl), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("get a lease from %s: %w", addr, err), c.Close())
	}
	return &session{c: c, lease: lease, o: o}, nil
}

// Renew keeps the session's lease alive, without a log entry: the leader answers from memory.
func (s *session) Renew(ctx context.Context, _, _ string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	alive, err := s.c.KeepAliveOnce(ctx, s.lease.Lease())
	return err == nil && alive.TTL > 0, err
}

// Read is a linearizable read.
func (s *session) Read(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	got, err := s.c.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return "", err
	}
	return string(got.Kvs[0].Value), nil
}

// putsAtATime is below etcd's limit of 128 operations in a transaction.
const putsAtATime = 100

// Fill writes keys without a lease.
func (s *session) Fill(ctx context.Context, n int, key func(int) string) error {
	for from := 0; from < n; from += putsAtATime {
		var puts []clientv3.Op
		for i := from; i < min(from+putsAtATime, n); i++ {
			puts = append(puts, clientv3.OpPut(key(i), "0123456789abcdef"))
		}
		if _, err := s.c.Txn(ctx).Then(puts...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// closeLimit bounds the revocation of the lease.
const closeLimit = 2 * time.Second

// Close revokes the lease, which deletes the session's keys.
func (s *session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	s.lease.Orphan()
	_, err := s.c.Revoke(ctx, s.lease.Lease())
	return errors.Join(err, s.c.Close())
}

// txn acquires a lock by a transaction: put if absent.
type txn struct{ *session }

func dialTxn(ctx context.Context, addr string, o target.Options) (target.Client, error) {
	s, err := dial(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return txn{s}, nil
}

// Acquire puts the key if it is absent.
func (t txn) Acquire(ctx context.Context, key, token string) (bool, error) {
	return t.commit(ctx, clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
		clientv3.OpPut(key, token, clientv3.WithLease(t.lease.Lease())))
}

// Release deletes the key if its value is token.
func (t txn) Release(ctx context.Context, key, token string) (bool, error) {
	return t.commit(ctx, clientv3.Compare(clientv3.Value(key), "=", token), clientv3.OpDelete(key))
}

func (t txn) commit(ctx context.Context, when clientv3.Cmp, then clientv3.Op) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.Timeout)
	defer cancel()
	done, err := t.c.Txn(ctx).If(when).Then(then).Commit()
	return err == nil && done.Succeeded, err
}

// mutex acquires locks by the recipe of etcd's library: a queue of keys under the lock's name, in which each client
// waits for the key before its own. Acquire waits.
type mutex struct {
	*session
	held map[string]*concurrency.Mutex
}

func dialMutex(ctx context.Context, addr string, o target.Options) (target.Client, error) {
	s, err := dial(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return mutex{session: s, held: make(map[string]*concurrency.Mutex)}, nil
}

// Acquire waits in the queue.
func (m mutex) Acquire(ctx context.Context, key, _ string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	lock := concurrency.NewMutex(m.lease, key)
	if err := lock.Lock(ctx); err != nil {
		return false, err
	}
	m.held[key] = lock
	return true, nil
}

// Release deletes the client's key.
func (m mutex) Release(ctx context.Context, key, _ string) (bool, error) {
	lock := m.held[key]
	if lock == nil {
		return false, nil
	}
	delete(m.held, key)
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	return true, lock.Unlock(ctx)
}
