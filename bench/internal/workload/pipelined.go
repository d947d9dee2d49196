package workload

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/protocol"
)

// pipelineKeys is the number of keys of pipelines, as in redis-benchmark -r 1000000.
const pipelineKeys = 1_000_000

// waitMillis is the timeout of WAIT.
const waitMillis = "1000"

func pipelined(ctx context.Context, e Env) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var ops []load.Op
	for i := range e.Connections {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], e.Client.Timeout)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		ops = append(ops, pipeline(e, c, i))
	}
	f, err := measure(ctx, e, ops)
	if err == nil && e.Target.Own {
		err = flush(ctx, e)
	}
	return f, err
}

// pipeline sends a batch in one write and reads the replies in order. A nil reply for an existing key counts like OK.
func pipeline(e Env, c *resp.Conn, worker int) load.Op {
	random := newRandom(worker)
	ttl := strconv.FormatInt(e.Client.TTL.Milliseconds(), 10)
	return func(_ context.Context, start time.Time, r *load.Recorder) error {
		for range e.Sizes.Depth {
			c.Append("set", prefix+"p:"+strconv.Itoa(random.IntN(pipelineKeys)), "0123456789abcdef", "nx", "px", ttl)
		}
		replies := e.Sizes.Depth
		if e.Target.Wait > 0 {
			// One wait confirms all earlier commands of this connection.
			c.Append("wait", strconv.Itoa(e.Target.Wait), waitMillis)
			replies++
		}
		if err := c.Flush(); err != nil {
			return err
		}
		var refused error
		for range replies {
			v, err := c.Read()
			var reply *resp.ReplyError
			switch {
			case v.Kind == protocol.KindInteger && v.Num < int64(e.Target.Wait):
				refused = target.ErrNotReplicated
			case errors.As(err, &reply):
				refused = err
			case err != nil:
				return err
			}
		}
		end := time.Now()
		if refused == nil {
			r.Latency("batch", start, end)
			r.Count("commands", int64(e.Sizes.Depth), end)
		}
		return refused
	}
}
