package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
)

// errTaken is acquire's answer when somebody else holds the lock.
var errTaken = errors.New("taken")

// lock is what the libraries have in common. Release of a lock that is not held fails.
type lock interface {
	acquire(ctx context.Context) error
	extend(ctx context.Context) error
	release(ctx context.Context) error
}

type library struct {
	name string
	open func(node, name string) lock
}

func libraries() []library {
	return []library{
		{"redsync RESP3", func(node, name string) lock { return newRedsync(node, name, 3) }},
		{"redsync RESP2", func(node, name string) lock { return newRedsync(node, name, 2) }},
		{"rueidis", func(node, name string) lock { return &rueidisLock{node: node, name: name} }},
		{"bsm/redislock", func(node, name string) lock {
			return &redislockLock{client: redislock.New(newClient(node, 3)), name: name}
		}},
	}
}

type redsyncLock struct{ mutex *redsync.Mutex }

func newRedsync(node, name string, protocol int) lock {
	pool := goredis.NewPool(newClient(node, protocol))
	return redsyncLock{redsync.New(pool).NewMutex(name, redsync.WithExpiry(long), redsync.WithTries(1))}
}

func (l redsyncLock) acquire(ctx context.Context) error {
	err := l.mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return errTaken
	}
	return err
}

func (l redsyncLock) extend(ctx context.Context) error {
	ok, err := l.mutex.ExtendContext(ctx)
	return whole(ok, err, "extend")
}

func (l redsyncLock) release(ctx context.Context) error {
	ok, err := l.mutex.UnlockContext(ctx)
	return whole(ok, err, "release")
}

func whole(ok bool, err error, verb string) error {
	if err == nil && !ok {
		err = fmt.Errorf("%s answered false", verb)
	}
	return err
}

type redislockLock struct {
	client *redislock.Client
	name   string
	held   *redislock.Lock
}

func (l *redislockLock) acquire(ctx context.Context) error {
	held, err := l.client.Obtain(ctx, l.name, long, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errTaken
	}
	l.held = held
	return err
}

func (l *redislockLock) extend(ctx context.Context) error {
	if l.held == nil {
		return redislock.ErrLockNotHeld
	}
	return l.held.Refresh(ctx, long, nil)
}

func (l *redislockLock) release(ctx context.Context) error {
	if l.held == nil {
		return redislock.ErrLockNotHeld
	}
	return l.held.Release(ctx)
}

// rueidisLock locks by SET NX PX and scripts, since rueidis's own locker needs CLIENT TRACKING.
type rueidisLock struct {
	node, name string
	client     rueidis.Client
}

func (l *rueidisLock) acquire(ctx context.Context) (err error) {
	if l.client == nil {
		if l.client, err = newRueidis(l.node); err != nil {
			return err
		}
	}
	err = l.client.Do(ctx,
		l.client.B().Set().Key(l.name).Value(l.token()).Nx().PxMilliseconds(long.Milliseconds()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return errTaken
	}
	return err
}

func (l *rueidisLock) token() string { return fmt.Sprintf("%p", l) }

func (l *rueidisLock) extend(ctx context.Context) error { return l.script(ctx, extendScript) }

func (l *rueidisLock) release(ctx context.Context) error { return l.script(ctx, releaseScript) }

func (l *rueidisLock) script(ctx context.Context, source string) error {
	millis := strconv.FormatInt(long.Milliseconds(), 10)
	done, err := rueidis.NewLuaScript(source).Exec(ctx, l.client, []string{l.name}, []string{l.token(), millis}).AsInt64()
	return whole(done == 1, err, "the script")
}

// seen checks that another node lists the library's lock, with the renewal and the client of the holder. Redis cannot.
func seen(ctx context.Context, node, name string) error {
	if os.Getenv("HOLDFAST_TARGET") == "redis" {
		return nil
	}
	client := newClient(node, 3)
	defer client.Close()
	var found []any
	for cursor := "0"; ; {
		page, err := client.Do(ctx, "LOCK.LIST", "MATCH", name, "COUNT", 100, "CURSOR", cursor).Slice()
		if err != nil {
			return fmt.Errorf("LOCK.LIST: %w", err)
		}
		found = append(found, page[1].([]any)...)
		if cursor = page[0].(string); cursor == "0" {
			break
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("LOCK.LIST says %v", found)
	}
	fields, _ := found[0].(map[any]any)
	holders, _ := fields["holders"].([]any)
	if fields["mode"] != "stock" || len(holders) != 1 {
		return fmt.Errorf("LOCK.LIST says %v", fields)
	}
	holder, _ := holders[0].(map[any]any)
	if holder["owner"] == "" || holder["renewals"] != int64(1) || holder["client-state"] != "connected" ||
		holder["client-addr"] == "" {
		return fmt.Errorf("LOCK.LIST says of the holder %v", holder)
	}
	return nil
}

func roundTrip(ctx context.Context, l library, node, other, name string) error {
	holder, stranger := l.open(node, name), l.open(other, name)
	return first(
		func() error { return holder.acquire(ctx) },
		func() error { return equal(stranger.acquire(ctx), errTaken) },
		func() error {
			if stranger.release(ctx) == nil {
				return errors.New("a stranger released the lock")
			}
			return nil
		},
		func() error { return holder.extend(ctx) },
		func() error { return seen(ctx, other, name) },
		func() error { return equal(stranger.acquire(ctx), errTaken) },
		func() error { return holder.release(ctx) },
		func() error { return stranger.acquire(ctx) },
		func() error { return stranger.release(ctx) },
	)
}
