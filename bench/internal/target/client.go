package target

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Client is a client with one connection, or with a connection to each server of a Redlock.
// A Client is for one goroutine.
type Client interface {
	// Acquire takes the lock, or reports that another owner has it.
	Acquire(ctx context.Context, key, token string) (bool, error)
	// Release gives the lock back, or reports that the lock is not the token's.
	Release(ctx context.Context, key, token string) (bool, error)
	// Renew gives the lock the whole time to live again.
	Renew(ctx context.Context, key, token string) (bool, error)
	// Read reads a key; a missing key is "".
	Read(ctx context.Context, key string) (string, error)
	Close() error
}

// Filler is a client that writes many keys in a way of its own. Clients that are not Fillers speak RESP.
type Filler interface {
	// Fill writes n keys with a value, for good.
	Fill(ctx context.Context, n int, key func(int) string) error
}

// Options are the options of clients.
type Options struct {
	TTL     time.Duration
	Timeout time.Duration
	// Wait is the number of replicas that must have a lock before the lock counts as taken.
	Wait int
}

func (o Options) ttlMillis() string { return strconv.FormatInt(o.TTL.Milliseconds(), 10) }

// ErrNotReplicated is returned when WAIT saw fewer replicas than asked for.
var ErrNotReplicated = errors.New("too few replicas confirmed the lock")

// waitMillis is the timeout that is given to WAIT.
const waitMillis = "1000"

// The scripts that lock libraries send.
const (
	releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`
	renewScript   = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`
)
