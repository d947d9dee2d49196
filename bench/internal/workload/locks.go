package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/target"
)

const prefix = "bench:"

// ownKey returns a random key of one worker only: those whose number is the worker's, modulo the number of workers.
func ownKey(e Env, worker int, random *rand.Rand) string {
	mine := max(1, e.Sizes.Keys/e.Connections)
	return prefix + strconv.Itoa(worker+e.Connections*random.IntN(mine))
}

// newRandom makes a worker's choices the same in every run.
func newRandom(worker int) *rand.Rand { return rand.New(rand.NewPCG(uint64(worker), 1)) }

// tokens generates a worker's unique tokens of 16 bytes.
type tokens struct{ next uint64 }

func newTokens() *tokens { return &tokens{next: rand.Uint64()} }

func (t *tokens) token() string {
	t.next++
	return fmt.Sprintf("%016x", t.next)
}

var (
	errStillHeld = errors.New("the lock is held by somebody else")
	errNotMine   = errors.New("the lock was not there to be released")
)

func uncontended(ctx context.Context, e Env) (*Figures, error) {
	return loop(ctx, e, func(worker int, c target.Client) load.Op { return pairs(e, worker, c) })
}

// pairsOf connects as many workers as e says, each with its own [pairs]. end closes the connections.
func pairsOf(ctx context.Context, e Env) (ops []load.Op, end func(), err error) {
	clients, err := e.Target.Clients(ctx, e.Connections, e.Client)
	if err != nil {
		return nil, nil, err
	}
	for i, c := range clients {
		ops = append(ops, pairs(e, i, c))
	}
	return ops, func() { target.CloseAll(clients) }, nil
}

// pairs acquires and releases locks on a worker's own keys.
func pairs(e Env, worker int, c target.Client) load.Op {
	random, tokens := newRandom(worker), newTokens()
	return func(ctx context.Context, start time.Time, r *load.Recorder) error {
		return pair(ctx, c, ownKey(e, worker, random), tokens.token(), start, r)
	}
}

// pair acquires and releases a lock that should be free.
func pair(ctx context.Context, c target.Client, key, token string, start time.Time, r *load.Recorder) error {
	ok, err := c.Acquire(ctx, key, token)
	acquired := time.Now()
	if err != nil {
		return err
	}
	if !ok {
		return errStillHeld
	}
	return release(ctx, c, key, token, start, acquired, r)
}

// release releases a lock and records the whole pair.
func release(ctx context.Context, c target.Client, key, token string, start, acquired time.Time,
	r *load.Recorder,
) error {
	ok, err := c.Release(ctx, key, token)
	released := time.Now()
	if err != nil {
		return err
	}
	if !ok {
		return errNotMine
	}
	r.Latency("acquire", start, acquired)
	r.Latency("release", acquired, released)
	r.Latency("pair", start, released)
	return nil
}

// hot passes one lock around. A worker pauses after its turn, since its next request would otherwise precede every
// other worker's next poll.
func hot(ctx context.Context, e Env) (*Figures, error) {
	var last, served, most atomic.Int64
	last.Store(-1)
	f, err := loop(ctx, e, func(worker int, c target.Client) load.Op {
		random, tokens := newRandom(worker), newTokens()
		return func(ctx context.Context, start time.Time, r *load.Recorder) error {
			key, token, before := prefix+"hot", tokens.token(), served.Load()
			if err := poll(ctx, e, c, key, token, random, r); err != nil {
				return err
			}
			acquired := time.Now()
			raise(&most, served.Add(1)-before-1)
			if last.Swap(int64(worker)) != int64(worker) {
				r.Latency("handoff", start, acquired)
			}
			if err := release(ctx, c, key, token, start, acquired, r); err != nil {
				return err
			}
			return rest(ctx, pollPause(e, random))
		}
	})
	if err == nil {
		f.each("handoff")
		f.Numbers["most_served_before"] = float64(most.Load())
	}
	return f, err
}

// raise sets most to n if n is larger.
func raise(most *atomic.Int64, n int64) {
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}

func contended(ctx context.Context, e Env) (*Figures, error) {
	return loop(ctx, e, func(worker int, c target.Client) load.Op {
		random, tokens := newRandom(worker), newTokens()
		return func(ctx context.Context, start time.Time, r *load.Recorder) error {
			key, token := prefix+"shared:"+strconv.Itoa(random.IntN(e.Sizes.Shared)), tokens.token()
			if err := poll(ctx, e, c, key, token, random, r); err != nil {
				return err
			}
			acquired := time.Now()
			return release(ctx, c, key, token, start, acquired, r)
		}
	})
}

// poll retries until it acquires the lock.
func poll(ctx context.Context, e Env, c target.Client, key, token string, random *rand.Rand, r *load.Recorder) error {
	for {
		ok, err := c.Acquire(ctx, key, token)
		r.Count("attempts", 1, time.Now())
		if ok || err != nil {
			return err
		}
		if err := rest(ctx, pollPause(e, random)); err != nil {
			return err
		}
	}
}

// pollPause is random, with e.Sizes.Poll as its mean, so that workers do not poll in step.
func pollPause(e Env, random *rand.Rand) time.Duration {
	return time.Duration((0.5 + random.Float64()) * float64(e.Sizes.Poll))
}

func renewals(ctx context.Context, e Env) (*Figures, error) {
	return loop(ctx, e, func(worker int, c target.Client) load.Op {
		k := &keeper{c: c, key: prefix + "kept:" + strconv.Itoa(worker), tokens: newTokens()}
		return k.renew
	})
}

// keeper is a worker that holds a lock.
type keeper struct {
	c          target.Client
	key, token string
	tokens     *tokens
}

func (k *keeper) renew(ctx context.Context, start time.Time, r *load.Recorder) error {
	if k.token == "" {
		return k.take(ctx)
	}
	ok, err := k.c.Renew(ctx, k.key, k.token)
	if err != nil {
		return err
	}
	if !ok {
		k.token = ""
		return errNotMine
	}
	r.Latency("renew", start, time.Now())
	return nil
}

// take acquires the lock, which a previous run may have left without a holder.
func (k *keeper) take(ctx context.Context) error {
	token := k.tokens.token()
	ok, err := k.c.Acquire(ctx, k.key, token)
	if err != nil {
		return err
	}
	if !ok {
		old, err := k.c.Read(ctx, k.key)
		if err == nil {
			_, err = k.c.Release(ctx, k.key, old)
		}
		return err
	}
	k.token = token
	return nil
}
