package target

import (
	"context"
	"strconv"
)

// native takes native locks. There is no library for these words: all clients are raw. Acquire waits.
type native struct{ *raw }

func dialNative(ctx context.Context, addr string, o Options) (Client, error) {
	r, err := newRaw(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return native{r}, nil
}

// waitShare is how much of the limit of a command a waiter waits in line, in percent.
const waitShare = 90

// Acquire waits in line. The token is the owner.
func (n native) Acquire(ctx context.Context, key, token string) (bool, error) {
	wait := strconv.FormatInt(n.o.Timeout.Milliseconds()*waitShare/100, 10)
	v, err := n.do(ctx, "lock.acquire", key, token, "px", n.o.ttlMillis(), "wait", wait)
	return err == nil && v.Num > 0, err
}

func (n native) Release(ctx context.Context, key, token string) (bool, error) {
	v, err := n.do(ctx, "lock.release", key, token)
	return err == nil && !v.IsNull(), err
}

func (n native) Renew(ctx context.Context, key, token string) (bool, error) {
	v, err := n.do(ctx, "lock.renew", key, token, "px", n.o.ttlMillis())
	return err == nil && !v.IsNull(), err
}
