package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
)

// besideWorkers is the number of connections that acquire locks.
const besideWorkers = 4

// The users of servers with [target.Target.Users] besides the default user: one without a limit, and one with
// FloodLimit commands a second on each node.
const (
	FloodUser, FloodLimitedUser = "flood", "flood-limited"
	FloodLimit                  = 2000
)

// neighbour is a load of many connections that each send much work at a time, in a loop.
type neighbour struct {
	name        string
	connections int
	// user is the connections' user, or empty for the default user.
	user string
	// commands returns one pipeline of a connection.
	commands func(worker, turn int) [][]string
	// ends: e.Sizes.Locks leases of the neighbour end at the instant at which the window opens. Its connection only
	// counts them, and the window closes after the last.
	ends bool
}

const hsets = "for i = 1, 1000 do redis.call('hset', KEYS[1], i, ARGV[1]) end return 1"

// A connection enters the queue of a lock joinDepth*joinPipelines times, and then leaves it as often.
const joinDepth, joinPipelines = 1000, 5

var neighbours = []neighbour{
	{name: "pipelines", connections: 50, commands: func(worker, turn int) (all [][]string) {
		for i := range 1000 {
			all = append(all, []string{"set", prefix + "n:" + strconv.Itoa(worker*1000+i), strconv.Itoa(turn)})
		}
		return all
	}},
	{name: "hsets", connections: 64, commands: func(worker, turn int) [][]string {
		return [][]string{{"eval", hsets, "1", prefix + "h:" + strconv.Itoa(worker), strconv.Itoa(turn)}}
	}},
	{name: "steps", connections: 64, commands: func(int, int) [][]string {
		return [][]string{{"eval", "local s = 0 for i = 1, 1000000 do s = s + i end return s", "0"}}
	}},
	{name: "values", connections: 8, commands: func(worker, _ int) [][]string {
		return [][]string{{"set", prefix + "v:" + strconv.Itoa(worker), strings.Repeat("x", 8_000_000)}}
	}},
	{name: "joins", connections: 20, commands: func(worker, turn int) [][]string {
		all := [][]string{{"lock.acquire", prefix + "j", holder, "px", "3600000"}}
		first := (worker*joinPipelines + turn%joinPipelines) * joinDepth
		for i := range joinDepth {
			owner := strconv.Itoa(first + i)
			words := []string{"lock.acquire", prefix + "j", owner, "px", "3600000", "wait", "0", "notify"}
			if turn/joinPipelines%2 == 1 {
				words = []string{"lock.cancel", prefix + "j", owner}
			}
			all = append(all, words)
		}
		return all
	}},
	{name: "ends", connections: 1, ends: true},
}

// floods are pipelines of a user with a limit and of one without.
var floods = []neighbour{
	{name: "flooded", connections: 32, user: FloodUser, commands: flood},
	{name: "limited", connections: 32, user: FloodLimitedUser, commands: flood},
}

// flood sets random keys.
func flood(worker, turn int) (all [][]string) {
	random := newRandom(worker<<32 + turn)
	for range 64 {
		all = append(all, []string{"set", prefix + "flood:" + strconv.Itoa(random.IntN(pipelineKeys)), holder})
	}
	return all
}

// Neighbours returns the steps of the workload beside: acquires alone, and beside each neighbour by its name.
func Neighbours() []string {
	names := []string{alone.name}
	for _, n := range neighbours {
		names = append(names, n.name)
	}
	return names
}

// alone is the absence of a neighbour.
var alone = neighbour{name: "alone"}

// beside measures acquires of pairs without a neighbour and beside each. Refusals of a neighbour are counted, but are
// no errors.
func beside(ctx context.Context, e Env, neighbours []neighbour) (*Figures, error) {
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
		s, took, err := besidePart(ctx, e, endpoints, &n)
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
				n.name + "_pairs_ratio":        acquire.PerSecond / undisturbed.PerSecond,
				n.name + "_per_second":         float64(s.Counts["done"]) / took.Seconds(),
				n.name + "_refused_per_second": float64(s.Counts["refused"]) / took.Seconds(),
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

// besidePart measures acquires beside a neighbour, which may have no connections. took is the duration of the
// neighbour's work.
func besidePart(ctx context.Context, e Env, endpoints []string, n *neighbour) (
	s *load.Summary, took time.Duration, err error,
) {
	var ops []load.Op
	var ends *leaseEnds
	for i := range besideWorkers + n.connections {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], 10*e.Client.Timeout)
		if err != nil {
			return nil, 0, err
		}
		defer c.Close()
		if n.user != "" && i >= besideWorkers {
			if _, err := c.Do("auth", n.user, ""); err != nil {
				return nil, 0, fmt.Errorf("user %q: %w", n.user, err)
			}
		}
		switch {
		case i < besideWorkers:
			ops = append(ops, besidePair(e, c, i))
		case n.ends:
			ends = &leaseEnds{c: c}
			ops = append(ops, ends.count)
		default:
			ops = append(ops, n.op(c, i-besideWorkers))
		}
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if ends != nil {
		if err := ends.prepare(ctx, e, stop); err != nil {
			return nil, 0, err
		}
	}
	s, err = load.Run(run, load.Config{Warmup: e.Warmup, Measure: e.Measure}, ops)
	if !errors.Is(err, errAllEnded) {
		return s, e.Measure, err
	}
	took = time.Since(ends.at)
	acquire := s.Steps["acquire"]
	acquire.PerSecond *= e.Measure.Seconds() / took.Seconds()
	s.Steps["acquire"] = acquire
	return s, took, nil
}

// besidePair acquires and releases a worker's lock.
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

var errAllEnded = errors.New("all leases have ended")

// leaseEnds are leases that end at one instant.
type leaseEnds struct {
	c    *resp.Conn
	at   time.Time
	stop func(cause error)
	// ended is the number of leases that the server has removed since its start, and all the number after all of them.
	ended, all float64
}

// prepare creates the leases, and returns when the warm-up must begin.
func (l *leaseEnds) prepare(ctx context.Context, e Env, stop func(cause error)) error {
	n := e.Sizes.Locks
	l.stop, l.at = stop, time.Now().Add(e.Warmup+200*time.Millisecond+time.Duration(n)*30*time.Microsecond)
	c, err := writer(ctx, e)
	if err != nil {
		return err
	}
	defer c.Close()
	end := strconv.FormatInt(l.at.UnixMilli(), 10)
	if err := batches(ctx, n, func(i int) { c.Append("set", lockKey(i), holder, "nx", "pxat", end) }, c); err != nil {
		return err
	}
	left := time.Until(l.at.Add(-e.Warmup))
	if left < 0 {
		return fmt.Errorf("set %d leases: it took too long", n)
	}
	l.ended, err = l.read()
	l.all = l.ended + float64(n)
	return errors.Join(err, rest(ctx, left))
}

func (l *leaseEnds) read() (float64, error) {
	info, err := l.c.Do("info", "stats")
	if err != nil {
		return 0, err
	}
	return infoNumber(info.Str, "expired_keys")
}

// count counts the leases removed since the last call.
func (l *leaseEnds) count(ctx context.Context, _ time.Time, r *load.Recorder) error {
	if err := rest(ctx, 2*time.Millisecond); err != nil {
		return err
	}
	ended, err := l.read()
	if err != nil {
		return err
	}
	r.Count("done", int64(ended-l.ended), time.Now())
	if l.ended = ended; ended >= l.all {
		l.stop(errAllEnded)
	}
	return nil
}

// op sends one pipeline of the neighbour.
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
