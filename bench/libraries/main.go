// Command libraries is the benchmark's driver for Go's lock libraries. It reads a request and prints a reply, as in
// bench/internal/drive. The drivers of the other languages beside it do the same.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

var request struct {
	Workload string
	Target   struct {
		Name  string
		Addrs []string
	}
	Connections     int
	Warmup, Measure time.Duration
	Sizes           struct{ Poll time.Duration }
}

var ctx = context.Background()

// lock acquires a lock and returns its release function.
type lock func() (release func() error, err error)

// libraries return a new client's lock with a name.
var libraries = map[string]func(name string) (lock, error){
	"go-holdfast": func(name string) (lock, error) {
		client, err := holdfast.New(holdfast.Config{Addrs: request.Target.Addrs})
		return func() (func() error, error) {
			held, err := client.Lock(ctx, name)
			return func() error { return held.Unlock(ctx) }, err
		}, err
	},
	"go-etcd": func(name string) (lock, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: request.Target.Addrs, DialTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(client)
		return func() (func() error, error) {
			mutex := concurrency.NewMutex(session, name)
			return func() error { return mutex.Unlock(ctx) }, mutex.Lock(ctx)
		}, err
	},
	"go-rueidislock": func(name string) (lock, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: request.Target.Addrs}, KeyMajority: 1,
		})
		return func() (func() error, error) {
			_, cancel, err := locker.WithContext(ctx, name)
			return func() error { cancel(); return nil }, err
		}, err
	},
	"go-redsync": func(name string) (lock, error) {
		pool := goredis.NewPool(redis.NewClient(&redis.Options{Addr: request.Target.Addrs[0]}))
		mutex := redsync.New(pool).NewMutex(name, redsync.WithTries(1<<30), redsync.WithExpiry(30*time.Second))
		return func() (func() error, error) {
			return func() error { _, err := mutex.Unlock(); return err }, mutex.Lock()
		}, nil
	},
}

var (
	pairs, handoffs atomic.Int64
	served          atomic.Int64 // workers that have had the lock
	last            atomic.Int64
	mu              sync.Mutex
	failed          = map[string]int{}
)

func work(worker int64, name string, rest time.Duration) error {
	lock, err := libraries[request.Target.Name](name)
	for first := true; err == nil; first = false {
		var release func() error
		if release, err = lock(); err != nil {
			break
		}
		if pairs.Add(1); first {
			served.Add(1)
		}
		if last.Swap(worker) != worker {
			handoffs.Add(1)
		}
		err = release()
		time.Sleep(time.Duration((0.5 + rand.Float64()) * float64(rest)))
	}
	return err
}

// hasFailed reports whether a worker has failed.
func hasFailed() bool {
	mu.Lock()
	defer mu.Unlock()
	return len(failed) > 0
}

func main() {
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		log.Fatal(err)
	}
	run := strconv.FormatUint(rand.Uint64(), 36) // part of lock names, so that locks of a previous run do not matter
	for i := range request.Connections {
		name, rest := fmt.Sprintf("bench:%s:%d", run, i), time.Duration(0)
		if request.Workload == "hot" {
			name, rest = "bench:"+run+":hot", request.Sizes.Poll
		}
		go func() {
			err := work(int64(i+1), name, rest)
			mu.Lock()
			defer mu.Unlock()
			failed[err.Error()]++
		}()
	}
	for served.Load() < int64(request.Connections) && !hasFailed() { // until all workers are connected
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(request.Warmup)
	begun, p, h := time.Now(), pairs.Load(), handoffs.Load()
	time.Sleep(request.Measure)
	seconds := time.Since(begun).Seconds()
	p, h = pairs.Load()-p, handoffs.Load()-h
	rate := func(n int64) map[string]any { return map[string]any{"count": n, "per_second": float64(n) / seconds} }
	mu.Lock()
	defer mu.Unlock()
	figures := map[string]any{"steps": map[string]any{"pair": rate(p), "handoff": rate(h)}, "errors": failed}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"figures": figures}); err != nil {
		log.Fatal(err)
	}
}
