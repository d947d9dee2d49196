package target

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// The scripts of Redisson's RLock before its releases with a latch for lost replies.
const (
	redissonLock = `if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then ` +
		`redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);`
	redissonUnlock = `if (redis.call('hexists', KEYS[1], ARGV[2]) == 0) then return nil; end; ` +
		`local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[1]); return 0; ` +
		`else redis.call('del', KEYS[1]); redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0'); return 1; end;`
	redissonRenew = `if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('pexpire', KEYS[1], ARGV[1]); return 1; end; return 0;`
)

// redisson acquires locks as Redisson does: a refused client subscribes to the lock's channel, and tries again after
// each message, and when the lease ends. Acquire waits.
type redisson struct {
	*raw
	lock, unlock, renew script
	told                *listener // nil before the first subscription
}

func dialRedisson(ctx context.Context, addr string, o Options) (Client, error) {
	r, err := newRaw(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return &redisson{
		raw: r, lock: newScript(redissonLock), unlock: newScript(redissonUnlock),
		renew: newScript(redissonRenew),
	}, nil
}

// try returns null if the lock is acquired, or else its remaining TTL.
func (r *redisson) try(ctx context.Context, key, token string) (protocol.Value, error) {
	return r.run(ctx, r.lock, key, r.o.ttlMillis(), token)
}

// Acquire waits for a message or the end of the lease before each further try.
func (r *redisson) Acquire(ctx context.Context, key, token string) (bool, error) {
	left, err := r.try(ctx, key, token)
	if err != nil || left.IsNull() {
		return err == nil, err
	}
	if r.told == nil {
		if r.told, err = listen(ctx, r.addr, r.o.Timeout); err != nil {
			return false, err
		}
	}
	channel := "redisson_lock__channel:{" + key + "}"
	if err := r.told.do(ctx, "subscribe", channel); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	for {
		left, err = r.try(ctx, key, token)
		if err != nil {
			return false, err
		}
		if left.IsNull() {
			return true, r.told.do(ctx, "unsubscribe", channel)
		}
		select {
		case <-r.told.messages:
		case <-time.After(time.Duration(left.Num) * time.Millisecond):
		case <-r.told.ended:
			return false, errListenerEnded
		case <-ctx.Done():
			return false, errors.Join(context.Cause(ctx), r.told.do(context.WithoutCancel(ctx), "unsubscribe", channel))
		}
	}
}

func (r *redisson) Release(ctx context.Context, key, token string) (bool, error) {
	v, err := r.run(ctx, r.unlock, key, r.o.ttlMillis(), token)
	return err == nil && !v.IsNull(), err
}

func (r *redisson) Renew(ctx context.Context, key, token string) (bool, error) {
	v, err := r.run(ctx, r.renew, key, r.o.ttlMillis(), token)
	return v.Num == 1, err
}

func (r *redisson) Close() error {
	if r.told != nil {
		_ = r.told.nc.Close()
	}
	return r.raw.Close()
}

// listener is a connection for messages. It keeps one unread message, like Redisson's semaphore.
type listener struct {
	nc       net.Conn
	resp     *protocol.Conn
	messages chan struct{}
	replies  chan struct{}
	ended    chan struct{}
}

var errListenerEnded = errors.New("the connection for messages ended")

func listen(ctx context.Context, addr string, limit time.Duration) (*listener, error) {
	nc, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &listener{
		nc: nc, resp: protocol.NewConn(nc), messages: make(chan struct{}, 1), replies: make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
	go l.read()
	return l, nil
}

func (l *listener) read() {
	defer close(l.ended)
	for {
		v, err := l.resp.Receive()
		if err != nil || len(v.Elems) == 0 {
			return
		}
		to := l.replies
		if v.Elems[0].Str == "message" {
			to = l.messages
		}
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// do subscribes or unsubscribes, and waits for the confirmation.
func (l *listener) do(ctx context.Context, words ...string) error {
	l.resp.Append(words...)
	if _, err := l.resp.Flush(); err != nil {
		return err
	}
	select {
	case <-l.replies:
		return nil
	case <-l.ended:
		return errListenerEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
