package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/push"
)

// The recipe for go-redis: copy this file.

// Lock is a native lock that ends with its connection: with this process, too.
type Lock struct {
	client      *redis.Client // for this lock alone
	conn        *redis.Conn
	Name, Owner string
	Session     int64
	Lost        string // the reason, once it is known
}

// NewLock opens a session on a connection of its own. go-redis gives a closed Conn back to its pool, so the
// client is the lock's, too; it must not repeat commands on another connection.
func NewLock(ctx context.Context, o redis.Options, name, owner string, lease time.Duration) (*Lock, error) {
	o.Protocol, o.MaxRetries = 3, -1
	c := redis.NewClient(&o)
	l := &Lock{client: c, conn: c.Conn(), Name: name, Owner: owner}
	if err := l.conn.RegisterPushNotificationHandler("lock", l, false); err != nil {
		return nil, err
	}
	var err error
	l.Session, err = l.do(ctx, "SESSION.OPEN", "PX", lease.Milliseconds(), "CONNECTION")
	return l, err
}

func (l *Lock) do(ctx context.Context, words ...any) (int64, error) {
	cmd := redis.NewIntCmd(ctx, words...)
	_ = l.conn.Process(ctx, cmd)
	return cmd.Result()
}

// HandlePushNotification takes the notice of a loss: "lock", "lost", name, owner, fence, reason.
func (l *Lock) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, n []any) error {
	if len(n) > 5 && n[1] == "lost" && n[2] == l.Name && n[3] == l.Owner {
		l.Lost, _ = n[5].(string)
	}
	return nil
}

// Acquire stands in line until ctx ends, in slices that are shorter than the client's time-out of reads. Asking again
// keeps the place. It returns the fence.
func (l *Lock) Acquire(ctx context.Context, note string) (int64, error) {
	for {
		fence, err := l.do(ctx, "LOCK.ACQUIRE", l.Name, l.Owner, "SESSION", l.Session, "WAIT", 2000, "NOTE", note)
		if !errors.Is(err, redis.Nil) {
			return fence, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// Held asks whether the lock is still held. A notice is taken at the latest then.
func (l *Lock) Held(ctx context.Context) (bool, error) {
	_, err := l.do(ctx, "LOCK.CHECK", l.Name, l.Owner)
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// Release gives the lock back.
func (l *Lock) Release(ctx context.Context) error {
	_, err := l.do(ctx, "LOCK.RELEASE", l.Name, l.Owner)
	return err
}

// Close ends the connection, the session and the lock.
func (l *Lock) Close() error { return l.client.Close() }

// MayWrite reports whether the holder with this fence may still write to the resource.
func MayWrite(ctx context.Context, c *redis.Client, resource string, fence int64) (bool, error) {
	passed, err := c.Do(ctx, "FENCE.PASS", resource, fence).Int()
	return passed == 1, err
}
