package workload

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// hearLimit bounds the time until subscribers receive the last messages without faults: after a partition, TCP's
// retransmissions are rare.
const hearLimit = 30 * time.Second

// pubsub has clients that publish on three channels of a key, alone, in pipelines, by scripts and in transactions, and
// subscribers on all nodes. The third channel is a shard channel.
type pubsub struct {
	o    *Options
	keys *Rotation
	next atomic.Int64

	mu       sync.Mutex
	sessions map[*session]struct{} // subscribers
}

// session is a connection that is subscribed to channels of a key.
type session struct {
	w    *pubsub
	c    *Client // for recording
	slot int     // its process in the history
	key  string
	view int
	conn *wire.Conn
	from int64 // messages published from here on must be received

	mu    sync.Mutex
	heard []int64
	done  chan struct{} // closed when the session has ended
	// life is how long the session lasts. Final sets until: messages acknowledged by then must be received.
	life  time.Duration
	until int64
}

// views are the ways to subscribe.
var views = []struct {
	words    []string // followed by the channel's number or pattern
	channels int64    // as bits
}{
	{[]string{"SUBSCRIBE", "/0"}, 1},
	{[]string{"SUBSCRIBE", "/1"}, 2},
	{[]string{"PSUBSCRIBE", "/[01]"}, 3},
	{[]string{"SSUBSCRIBE", "/2"}, 4},
}

func newPubSub(o *Options) Workload {
	return &pubsub{o: o, keys: NewRotation(o.name, max(2, o.Concurrency/2), 200, 40), sessions: map[*session]struct{}{}}
}

func (w *pubsub) Checkers() []checker.Func { return []checker.Func{checker.Messages} }

func (w *pubsub) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	if c.chance(0.2) {
		w.subscribe(ctx, c, key)
		return
	}
	if w.publish(ctx, c, key).outcome == history.Info {
		w.keys.Unknown(n)
	}
}

var publishByScript = newLua(`for i = 1, #ARGV do redis.call("publish", KEYS[1], ARGV[i]) end return #ARGV`)

// publish publishes up to three messages on one channel.
func (w *pubsub) publish(ctx context.Context, c *Client, key string) result {
	channel := c.rng.Int64N(3)
	op := history.Op{F: "publish", Key: key, Input: []int64{channel}}
	words := []string{}
	for range 1 + c.rng.IntN(3) {
		op.Input = append(op.Input, w.next.Add(1))
		words = append(words, decimal(op.Input[len(op.Input)-1]))
	}
	command, name := "PUBLISH", key+"/"+decimal(channel)
	if channel == 2 {
		command = "SPUBLISH"
	}
	way := c.rng.IntN(3)
	return c.op(ctx, op, func(x exchange) result {
		if way == 0 && channel != 2 {
			return onInteger(x.eval(publishByScript, thenEval, []string{name}, words...))
		}
		commands := [][]string{}
		for _, word := range words {
			commands = append(commands, []string{command, name, word})
		}
		if way == 1 {
			commands = append(append([][]string{{"MULTI"}}, commands...), []string{"EXEC"})
			replies := x.conn.Pipeline(commands)
			return onLast(replies[len(replies)-1], x.conn)
		}
		return onAll(x.conn.Pipeline(commands))
	})
}

// onAll reads the replies of a pipeline as one: ok or failed only if all are.
func onAll(replies []wire.Reply) result {
	for _, r := range replies {
		if r.Outcome != replies[0].Outcome {
			return result{outcome: history.Info, why: "some of a pipeline: " + r.Why}
		}
	}
	return onInteger(replies[0])
}

// subscribe starts a session, if the client has a free process in the history.
func (w *pubsub) subscribe(ctx context.Context, c *Client, key string) {
	s := &session{w: w, c: c, key: key, view: c.rng.IntN(len(views)), done: make(chan struct{})}
	s.life = c.between(200*time.Millisecond, 8*time.Second)
	if !w.claim(s) {
		return
	}
	if !s.begin(ctx) {
		w.release(s)
		return
	}
	go s.run()
}

// claim finds a free process of the client for a session.
func (w *pubsub) claim(s *session) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := map[int]bool{0: true} // the client's own process
	for other := range w.sessions {
		if other.c == s.c {
			taken[other.slot] = true
		}
	}
	for s.slot = range maxPipe {
		if !taken[s.slot] {
			w.sessions[s] = struct{}{}
			return true
		}
	}
	return false
}

func (w *pubsub) release(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, s)
}

// begin connects and subscribes.
func (s *session) begin(ctx context.Context) bool {
	conn, err := s.c.dial(ctx)
	if err != nil {
		return false
	}
	conn.OnPush = s.receive
	words := views[s.view].words
	commands := [][]string{{words[0], s.key + words[1]}}
	if s.c.chance(0.5) {
		commands = append([][]string{{"HELLO", "3"}}, commands...)
	}
	for _, words := range commands {
		if r := conn.Do(words...); r.Outcome != history.OK {
			conn.Close()
			return false
		}
	}
	s.conn, s.from = conn, s.c.o.Recorder.Now()
	return true
}

func (s *session) receive(v protocol.Value) {
	if n, err := strconv.ParseInt(v.Elems[len(v.Elems)-1].Str, 10, 64); err == nil {
		s.mu.Lock()
		s.heard = append(s.heard, n)
		s.mu.Unlock()
	}
}

// run receives messages until the connection is lost or the session's life ends, and records them.
func (s *session) run() {
	defer close(s.done)
	defer s.w.release(s)
	for end := time.Now().Add(s.life); ; {
		standing := s.conn.Listen(200*time.Millisecond, func() bool { return false })
		s.mu.Lock()
		until := s.until
		s.mu.Unlock()
		if standing && (until == 0 && time.Now().Before(end) || until < 0) {
			continue
		}
		if !standing {
			until = 0
		}
		s.conn.Close()
		op := history.Op{F: "heard", Key: s.key, Input: []int64{views[s.view].channels, s.from, until}}
		s.c.o.Recorder.Invoke(s.c.worker*maxPipe+s.slot, op).OK(s.heard...)
		return
	}
}

// Final publishes again on all channels with subscribers, and waits until all have received that.
func (w *pubsub) Final(ctx context.Context, c *Client) {
	w.mu.Lock()
	sessions := map[*session]struct{}{}
	keys := map[string]bool{}
	for s := range w.sessions {
		s.mu.Lock()
		s.until = -1 // until stopped
		s.mu.Unlock()
		sessions[s] = struct{}{}
		keys[s.key] = true
	}
	w.mu.Unlock()
	var last []int64
	for key := range keys {
		for channel := range int64(3) {
			c.hop()
			id := w.next.Add(1)
			op := history.Op{F: "publish", Key: key, Input: []int64{channel, id}}
			command := []string{"PUBLISH", "PUBLISH", "SPUBLISH"}[channel]
			r := c.op(ctx, op, func(x exchange) result {
				return onInteger(x.do(command, key+"/"+decimal(channel), decimal(id)))
			})
			if r.outcome == history.OK {
				last = append(last, id)
			}
		}
	}
	until := c.o.Recorder.Now()
	for end := time.Now().Add(hearLimit); time.Now().Before(end) && !allHeard(sessions, last); {
		if !Sleep(ctx, 100*time.Millisecond) {
			break
		}
	}
	for s := range sessions {
		s.mu.Lock()
		s.until = until
		s.mu.Unlock()
		<-s.done
	}
}

// allHeard reports whether every session has ended or received one of the last messages of each of its channels.
func allHeard(sessions map[*session]struct{}, last []int64) bool {
	for s := range sessions {
		want := 1
		if views[s.view].channels == 3 {
			want = 2
		}
		s.mu.Lock()
		for _, id := range s.heard {
			if len(last) > 0 && id >= last[0] {
				want--
			}
		}
		s.mu.Unlock()
		select {
		case <-s.done:
		default:
			if want > 0 {
				return false
			}
		}
	}
	return true
}
