package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
)

var errMissing = errors.New("a key that was written cannot be read")

// readKey returns a key that fillReads writes.
func readKey(n int) string { return prefix + "read:" + strconv.Itoa(n) }

func reads(ctx context.Context, e Env) (*Figures, error) {
	if err := fillReads(ctx, e); err != nil {
		return nil, err
	}
	return loop(ctx, e, func(worker int, c target.Client) load.Op {
		random := newRandom(worker)
		return func(ctx context.Context, start time.Time, r *load.Recorder) error {
			return read(ctx, e, c, random, start, r)
		}
	})
}

func read(ctx context.Context, e Env, c target.Client, random *rand.Rand, start time.Time, r *load.Recorder) error {
	text, err := c.Read(ctx, readKey(random.IntN(e.Sizes.Keys)))
	switch {
	case err != nil:
		return err
	case text == "":
		return errMissing
	}
	r.Latency("get", start, time.Now())
	return nil
}

// fillReads writes the keys of reads, unless they exist.
func fillReads(ctx context.Context, e Env) error {
	one, err := e.Target.Clients(ctx, 1, e.Client)
	if err != nil {
		return err
	}
	defer target.CloseAll(one)
	text, err := one[0].Read(ctx, readKey(e.Sizes.Keys-1))
	if text != "" || err != nil {
		return err
	}
	if f, ok := one[0].(target.Filler); ok {
		return f.Fill(ctx, e.Sizes.Keys, readKey)
	}
	return fill(ctx, e, e.Sizes.Keys, readKey)
}

// fillDepth is the number of keys in one pipeline.
const fillDepth = 256

// fill writes keys with a TTL of an hour, through the target's leader.
func fill(ctx context.Context, e Env, n int, key func(int) string) error {
	c, err := writer(ctx, e)
	if err != nil {
		return err
	}
	defer c.Close()
	return batches(ctx, n, func(i int) {
		c.Append("set", key(i), "0123456789abcdef", "px", "3600000")
	}, c)
}

// writer connects to the target's leader.
func writer(ctx context.Context, e Env) (*resp.Conn, error) {
	leader, err := e.Target.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return resp.Dial(ctx, leader, e.Client.Timeout)
}

// Errors of a busy machine (no leader, unknown outcome) are retried, since writing or deleting the same keys is
// idempotent.
const (
	batchTries = 10
	batchPause = 200 * time.Millisecond
)

// batches calls add for each of n, and sends the appended commands in pipelines.
func batches(ctx context.Context, n int, add func(i int), c *resp.Conn) error {
	for from := 0; from < n; from += fillDepth {
		to := min(from+fillDepth, n)
		err := batch(from, to, add, c)
		var reply *resp.ReplyError
		for tries := 1; errors.As(err, &reply) && tries < batchTries; tries++ {
			if err := rest(ctx, batchPause); err != nil {
				return err
			}
			err = batch(from, to, add, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// batch sends a pipeline. It returns an error reply after it has read all replies.
func batch(from, to int, add func(i int), c *resp.Conn) error {
	for i := from; i < to; i++ {
		add(i)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	var refused error
	for range to - from {
		_, err := c.Read()
		var reply *resp.ReplyError
		switch {
		case errors.As(err, &reply):
			refused = err
		case err != nil:
			return err
		}
	}
	return refused
}
