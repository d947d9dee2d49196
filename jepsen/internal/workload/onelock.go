package workload

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// oneLease is the TTL of the lock, in milliseconds: longer than the longest work under the lock.
const oneLease = 3000

// oneLock is clients that share a lock and hold it long enough to be seen in a picture: SET NX PX,
// some work, and a compare-and-delete. An acquire has a third input, the client.
type oneLock struct {
	o      *Options
	key    string
	owners atomic.Int64
}

func newOneLock(o *Options) Workload { return &oneLock{o: o, key: "onelock:0"} }

func (w *oneLock) Name() string { return "onelock" }

// Checkers judge exclusion alone: a search for an order grows too fast with the operations on one key.
func (w *oneLock) Checkers() []checker.Func {
	return []checker.Func{checker.Exclusion(checker.Clocks{Drift: w.o.Drift})}
}

func (w *oneLock) Step(ctx context.Context, c *Client) {
	c.hop()
	owner := w.owners.Add(1)
	r := c.op(ctx, history.Op{F: "acquire", Key: w.key, Input: []int64{owner, oneLease, int64(c.worker)}},
		func(x exchange) result {
			return onOKOrNull(x.do("SET", w.key, ownerToken(owner), "NX", "PX", decimal(oneLease)))
		})
	if r.outcome != history.OK || r.output[0] != 1 {
		Sleep(ctx, c.between(50*time.Millisecond, 150*time.Millisecond))
		return
	}
	Sleep(ctx, c.between(400*time.Millisecond, 1600*time.Millisecond))
	c.hop()
	c.op(ctx, history.Op{F: "release", Key: w.key, Input: []int64{owner}}, func(x exchange) result {
		return byScript(compareAndDelete, thenEval)(x, w.key, ownerToken(owner), oneLease)
	})
}

// Final reads nothing: the checkers need no more than what clients were told.
func (w *oneLock) Final(context.Context, *Client) {}
