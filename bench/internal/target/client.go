package target

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Client is a client with one connection, or with one to each server of a Redlock. It is not safe for concurrent use.
type Client interface {
	// Acquire acquires the lock, or reports that another owner has it.
	Acquire(ctx context.Context, key, token string) (bool, error)
	// Release releases the lock, or reports that the token does not hold it.
	Release(ctx context.Context, key, token string) (bool, error)
	// Renew resets the lock's TTL.
	Renew(ctx context.Context, key, token string) (bool, error)
	// Read reads a key; a missing key is "".
	Read(ctx context.Context, key string) (string, error)
	Close() error
}

// Filler is a client with its own way to write many keys. All other clients speak RESP.
type Filler interface {
	// Fill writes n keys with a value and no TTL.
	Fill(ctx context.Context, n int, key func(int) string) error
}

// Options are the options of clients.
type Options struct {
	TTL     time.Duration
	Timeout time.Duration
	// Wait is the number of replicas that must confirm an acquire.
	Wait int
}

func (o Options) ttlMillis() string { return strconv.FormatInt(o.TTL.Milliseconds(), 10) }

// ErrNotReplicated is returned when WAIT saw fewer replicas than asked for.
var ErrNotReplicated = errors.New("too few replicas confirmed the lock")

// waitMillis is the timeout of WAIT.
const waitMillis = "1000"

// The scripts that lock libraries send.
const (
	releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`
	renewScript   = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`
)
