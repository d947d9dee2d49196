package workload

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
)

// A neighbour is many connections that each send much work at a time, again and again.
type neighbour struct {
	name        string
	connections int
	// commands is what a connection sends in one pipeline.
	commands func(worker, turn int) [][]string
}

const hsets = "for i = 1, 1000 do redis.call('hset', KEYS[1], i, ARGV[1]) end return 1"

var neighbours = []neighbour{
	{"pipelines", 50, func(worker, turn int) (all [][]string) {
		for i := range 1000 {
			all = append(all, []string{"set", prefix + "n:" + strconv.Itoa(worker*1000+i), strconv.Itoa(turn)})
		}
		return all
	}},
	{"hsets", 64, func(worker, turn int) [][]string {
		return [][]string{{"eval", hsets, "1", prefix + "h:" + strconv.Itoa(worker), strconv.Itoa(turn)}}
	}},
	{"steps", 64, func(int, int) [][]string {
		return [][]string{{"eval", "local s = 0 for i = 1, 1000000 do s = s + i end return s", "0"}}
	}},
	{"values", 8, func(worker, _ int) [][]string {
		return [][]string{{"set", prefix + "v:" + strconv.Itoa(worker), strings.Repeat("x", 8_000_000)}}
	}},
}

// Neighbours are the steps of the workload beside: acquires alone, and beside each neighbour by its name.
func Neighbours() []string {
	names := []string{alone.name}
	for _, n := range neighbours {
		names = append(names, n.name)
	}
	return names
}

// alone is no neighbour.
var alone = neighbour{name: "alone"}

// beside measures acquires of pairs: without a neighbour, and beside each. What a neighbour is refused is counted, and
// is no error.
func beside(ctx context.Context, e Env) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	before, err := term(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	f := &Figures{Steps: make(map[string]load.Latency), Errors: make(map[string]int64)}
	for _, n := range append([]neighbour{alone}, neighbours...) {
		s, err := besidePart(ctx, e, endpoints, &n)
		if err != nil {
			return nil, errors.Join(err, flush(ctx, e))
		}
		acquire, undisturbed := s.Steps["acquire"], f.Steps[alone.name]
		f.Steps[n.name] = acquire
		for text, count := range s.Errors {
			f.Errors[n.name+": "+text] += count
		}
		if n.connections > 0 {
			f.merge(map[string]float64{
				n.name + "_p50_ratio":          acquire.P50Micros / undisturbed.P50Micros,
				n.name + "_p99_ratio":          acquire.P99Micros / undisturbed.P99Micros,
				n.name + "_per_second":         float64(s.Counts["done"]) / e.Measure.Seconds(),
				n.name + "_refused_per_second": float64(s.Counts["refused"]) / e.Measure.Seconds(),
			})
		}
		if err := flush(ctx, e); err != nil {
			return nil, err
		}
	}
	after, err := term(ctx, e.Target)
	f.merge(map[string]float64{"elections": after - before})
	if len(f.Errors) == 0 {
		f.Errors = nil
	}
	return f, err
}

// besidePart measures while a neighbour without connections, or one with, is there.
func besidePart(ctx context.Context, e Env, endpoints []string, n *neighbour) (*load.Summary, error) {
	var ops []load.Op
	for i := range besideWorkers + n.connections {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], 10*e.Client.Timeout)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		if i < besideWorkers {
			ops = append(ops, besidePair(e, c, i))
			continue
		}
		ops = append(ops, n.op(c, i-besideWorkers))
	}
	return load.Run(ctx, load.Config{Warmup: e.Warmup, Measure: e.Measure}, ops)
}

// op sends a pipeline of the neighbour's.
func (n *neighbour) op(c *resp.Conn, worker int) load.Op {
	turn := 0
	return func(_ context.Context, _ time.Time, r *load.Recorder) error {
		turn++
		all := n.commands(worker, turn)
		for _, words := range all {
			c.Append(words...)
		}
		if err := c.Flush(); err != nil {
			return err
		}
		var refused *resp.ReplyError
		count := map[bool]int64{}
		for range all {
			_, err := c.Read()
			if err != nil && !errors.As(err, &refused) {
				return err
			}
			count[err == nil]++
		}
		r.Count("done", count[true], time.Now())
		r.Count("refused", count[false], time.Now())
		return nil
	}
}
