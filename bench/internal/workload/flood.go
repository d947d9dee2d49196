package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
)

// The users that servers with [target.Target.Users] have, all with FloodPassword. One sends as much as it can, another
// is the same with FloodLimit commands a second on each node, and a third takes locks beside them.
const (
	FloodUser, FloodLimitedUser, FloodBesideUser = "flood", "flood-limited", "beside"
	FloodPassword                                = "bench"
	FloodLimit                                   = 2000
)

// floodConnections is how many connections flood, each with a pipeline of floodDepth commands after another, and
// besideWorkers how many take locks.
const (
	floodConnections = 32
	floodDepth       = 64
	besideWorkers    = 4
)

// flood measures pairs of one user alone, beside the flood of another, and beside the same flood with a limit.
func flood(ctx context.Context, e Env) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	f := &Figures{Steps: make(map[string]load.Latency), Errors: make(map[string]int64)}
	alone := load.Latency{}
	for _, part := range []struct{ name, user string }{
		{"alone", ""},
		{"flooded", FloodUser},
		{"limited", FloodLimitedUser},
	} {
		s, err := floodPart(ctx, e, endpoints, part.user)
		if err != nil {
			return nil, err
		}
		pair := s.Steps["pair"]
		f.Steps[part.name] = pair
		for text, n := range s.Errors {
			f.Errors[part.name+": "+text] += n
		}
		f.merge(map[string]float64{part.name + "_flood_per_second": float64(s.Counts["flood"]) / e.Measure.Seconds()})
		if part.user == "" {
			alone = pair
			continue
		}
		f.merge(map[string]float64{
			part.name + "_p50_ratio": pair.P50Micros / alone.P50Micros, part.name +
				"_p99_ratio": pair.P99Micros / alone.P99Micros,
			part.name + "_pairs_ratio": pair.PerSecond / alone.PerSecond,
		})
	}
	if len(f.Errors) == 0 {
		f.Errors = nil
	}
	return f, flush(ctx, e)
}

// floodPart measures while a user floods; empty: none does.
func floodPart(ctx context.Context, e Env, endpoints []string, user string) (*load.Summary, error) {
	dial := func(i int, user string) (*resp.Conn, error) {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], e.Client.Timeout)
		if err != nil {
			return nil, err
		}
		if _, err := c.Do("auth", user, FloodPassword); err != nil {
			return nil, errors.Join(fmt.Errorf("user %q: %w", user, err), c.Close())
		}
		return c, nil
	}
	ops := make([]load.Op, 0, besideWorkers+floodConnections)
	for i := range besideWorkers {
		c, err := dial(i, FloodBesideUser)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		ops = append(ops, besidePair(e, c, i))
	}
	if user != "" {
		for i := range floodConnections {
			c, err := dial(i, user)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			ops = append(ops, floodPipeline(c, i))
		}
	}
	return load.Run(ctx, load.Config{Warmup: e.Warmup, Measure: e.Measure}, ops)
}

// besidePair takes a lock of the worker's and gives it back.
func besidePair(e Env, c *resp.Conn, worker int) load.Op {
	key, tokens := prefix+"beside:"+strconv.Itoa(worker), newTokens()
	return func(_ context.Context, start time.Time, r *load.Recorder) error {
		token := tokens.token()
		if v, err := c.Do("set", key, token, "nx", "px", strconv.FormatInt(e.Client.TTL.Milliseconds(), 10)); err != nil ||
			v.Str != "OK" {
			return errors.Join(err, errNotTaken)
		}
		acquired := time.Now()
		if _, err := c.Do("delifeq", key, token); err != nil {
			return err
		}
		r.Latency("acquire", start, acquired)
		r.Latency("pair", start, time.Now())
		return nil
	}
}

var errNotTaken = errors.New("a free lock was refused")

// floodPipeline sets random keys as fast as it is let.
func floodPipeline(c *resp.Conn, worker int) load.Op {
	random := newRandom(worker)
	return func(_ context.Context, _ time.Time, r *load.Recorder) error {
		for range floodDepth {
			c.Append("set", prefix+"flood:"+strconv.Itoa(random.IntN(pipelineKeys)), "0123456789abcdef")
		}
		if err := c.Flush(); err != nil {
			return err
		}
		for range floodDepth {
			if _, err := c.Read(); err != nil {
				return err
			}
		}
		r.Count("flood", int64(floodDepth), time.Now())
		return nil
	}
}
