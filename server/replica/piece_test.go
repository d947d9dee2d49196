package replica

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/forward"
)

// entries is the consumer of a queue. It takes the waiting batches, and answers them.
type entries struct {
	t      *testing.T
	queue  *queue
	number map[string]uint64 // of the batches that were taken last, by name
}

// numbered returns a batch of count requests. Each request has the batch's name and its own place, and is longer than
// the request before.
func numbered(name string, count int) *Batch {
	u := &Batch{Write: true, Count: count}
	for i := range count {
		u.Body = protocoltest.AppendRequest(u.Body, 0, name, fmt.Sprint(i), strings.Repeat("x", i))
	}
	return u
}

// take takes all waiting batches. It returns each as the names and places of its requests.
func (e *entries) take() (batches []string) {
	e.number = map[string]uint64{}
	e.queue.take("consumer", math.MaxUint64, func(b *forward.Batch) bool {
		batch, body, n := "", string(b.Body), 0
		var r protocol.Request
		for ; body != ""; n++ {
			var err error
			body, err = protocol.NextRequest(body, &r)
			require.NoError(e.t, err)
			e.number[r.Args[0]] = b.Seq
			batch += r.Args[0] + r.Args[1]
		}
		require.Equal(e.t, n, b.Count)
		batches = append(batches, batch)
		return true
	})
	return batches
}

// ran returns the answer to the requests of a batch at the places from up to to-1.
func (e *entries) ran(name string, from, to int) forward.Completion {
	c := forward.Completion{Number: e.number[name]}
	for i := from; i < to; i++ {
		c.Replies = append(c.Replies, protocol.Integer(int64(i)))
	}
	return c
}

func places(count int) (vs []protocol.Value) {
	for i := range count {
		vs = append(vs, protocol.Integer(int64(i)))
	}
	return vs
}

// inTable runs a test of a queue with a consumer, in virtual time. submit adds a batch, and returns the channel of its
// error.
func inTable(t *testing.T, test func(e *entries, submit func(*Batch) <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 1000}, func() {})
		queue.inTime = time.Second
		queue.Attach("consumer", make(chan struct{}, 1))
		test(&entries{t: t, queue: queue}, func(u *Batch) <-chan error {
			done := make(chan error, 1)
			go func() { done <- queue.run(u, time.Now().Add(3*time.Second)) }()
			synctest.Wait()
			return done
		})
	})
}

// TestBatchKnowsItsNumbers: a batch with writes reports each number under which a part of it is proposed, whether the
// rest takes a turn or not, as that of a duty. Reads report none.
func TestBatchKnowsItsNumbers(t *testing.T) {
	for _, duty := range []bool{false, true} {
		inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
			var numbers []uint64
			writes, reads := numbered("w", 2), numbered("r", 1)
			writes.Duty, reads.Write = duty, false
			for _, b := range []*Batch{writes, reads} {
				b.OnNumber = func(number uint64) { numbers = append(numbers, number) }
			}
			ended := []<-chan error{submit(writes), submit(reads)}
			require.Equal(t, []string{"w0w1", "r0"}, e.take())
			require.Equal(t, []uint64{1}, numbers)
			e.queue.Complete([]forward.Completion{e.ran("w", 0, 1)})
			require.Equal(t, []string{"w1"}, e.taken(entryWork, true))
			require.Equal(t, []uint64{1, 3}, numbers)
			e.queue.Complete([]forward.Completion{e.ran("w", 1, 2), {Number: 2, Replies: places(1)}})
			for _, done := range ended {
				require.NoError(t, <-done)
			}
		})
	}
}

// TestRestGoesBehindAll: the rest of a batch goes to the end of the queue, with a new number, and takes a turn. More of
// the rest is proposed if more of the last part ran.
func TestRestGoesBehindAll(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		a, b, c, d := numbered("a", 9), numbered("b", 3), numbered("c", 1), numbered("d", 1)
		ended := []<-chan error{submit(a), submit(b), submit(c)}
		require.Equal(t, []string{"a0a1a2a3a4a5a6a7a8", "b0b1b2", "c0"}, e.take())
		ended = append(ended, submit(d))
		first := e.ran("a", 0, 2)
		e.queue.Complete([]forward.Completion{first, e.ran("b", 0, 0), e.ran("c", 0, 1)})
		require.Equal(t, []string{"d0", "b0", "a2a3a4a5a6"}, e.taken(entryWork, true))
		e.queue.Complete([]forward.Completion{first}) // a late copy
		e.queue.Complete([]forward.Completion{e.ran("d", 0, 1), e.ran("b", 0, 1), e.ran("a", 2, 7)})
		require.Equal(t, []string{"a7a8", "b1b2"}, e.taken(entryWork, true), "b's part is taken for more work than a's")
		e.queue.Detach("consumer")
		e.queue.Attach("consumer", make(chan struct{}, 1)) // a failover: the same pieces with the same numbers
		numbers := e.number
		require.Equal(t, []string{"a7a8", "b1b2"}, e.take())
		require.Equal(t, numbers, e.number)
		e.queue.Complete([]forward.Completion{e.ran("a", 7, 8), e.ran("b", 1, 3)})
		require.Equal(t, []string{"a8"}, e.taken(entryWork, true))
		e.queue.Complete([]forward.Completion{e.ran("a", 8, 9)})
		for i, u := range []*Batch{a, b, c, d} {
			require.NoError(t, <-ended[i])
			require.Equal(t, places(u.Count), u.Replies)
		}
		require.True(t, e.queue.empty())
		require.Zero(t, e.queue.bytes)
		require.Equal(t, e.queue.next, e.queue.low)
	})
}

// TestCutBatchTakesATurn: a batch whose work was not known is small at first. Its rest is large once it was cut, and
// small batches do not wait for it. While none of its requests runs, its estimated work grows each time, so that fewer
// such batches fit into an entry.
func TestCutBatchTakesATurn(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		cut, read := submit(numbered("a", 5)), numbered("r", 2)
		read.Write = false
		submit(read)
		require.Equal(t, []string{"a0a1a2a3a4", "r0r1"}, e.take())
		e.queue.Complete([]forward.Completion{e.ran("a", 0, 0), e.ran("r", 0, 1)})
		submit(numbered("s", 1))
		for n, work := range []int64{fsm.MuchWork, 8 * fsm.MuchWork, 64 * fsm.MuchWork, entryWork, entryWork} {
			w := e.queue.waiting("consumer", entryWork, true)
			require.Equal(t, work, w.Work)
			require.Equal(t, n == 0, w.Large > w.From, "of the small batches none waits for its turn")
			e.take()
			e.queue.Complete([]forward.Completion{e.ran("a", 0, 0)})
		}
		require.Equal(t, []string{"a0"}, e.taken(entryWork, true))
		e.queue.Complete([]forward.Completion{e.ran("a", 0, 1)})
		require.Equal(t, int64(3*entryWork), e.queue.waiting("consumer", 0, true).Work, "its other requests may be alike")
		require.Equal(t, []string{"a1a2a3"}, e.take())
		e.queue.Complete([]forward.Completion{e.ran("a", 1, 3)})
		require.Equal(t, []string{"a3a4"}, e.taken(0, true))
		e.queue.Complete([]forward.Completion{e.ran("a", 3, 5)})
		require.NoError(t, <-cut)
		e.queue.close(protocol.ErrStopping)
	})
}

// TestEndedBatchIsLeftAlone: an answered batch belongs to the goroutine that waits for it. The queue does not touch it
// while it handles other batches of the entry. The race detector would find that.
func TestEndedBatchIsLeftAlone(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		a, b := submit(numbered("a", 2)), submit(numbered("b", 2))
		e.take()
		time.Sleep(2*time.Second + 1) // no time for another try
		e.queue.Complete([]forward.Completion{e.ran("a", 0, 0), e.ran("b", 0, 1)})
		require.Equal(t, protocol.ErrNoRoom, <-a)
		require.NoError(t, <-b)
	})
}

// TestRestRunsOutOfTime: requests that have run keep their replies, whatever ends the rest. The rest gets the error
// that is true for it.
func TestRestRunsOutOfTime(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(e *entries)
		want *protocol.Error
	}{
		{"no time for another try", func(e *entries) {
			time.Sleep(2*time.Second + 1)
			e.queue.Complete([]forward.Completion{e.ran("a", 1, 2)})
		}, protocol.ErrNoRoom},
		{"waits too long, untaken", func(e *entries) {
			e.queue.Complete([]forward.Completion{e.ran("a", 1, 2)})
			time.Sleep(3 * time.Second)
			e.queue.expire(time.Now())
		}, protocol.ErrBusy},
		{"waits too long, taken", func(e *entries) {
			e.queue.Complete([]forward.Completion{e.ran("a", 1, 2)})
			e.taken(entryWork, true)
			time.Sleep(3 * time.Second)
			e.queue.expire(time.Now())
		}, protocol.ErrUncertain},
		{"the node stops", func(e *entries) {
			e.queue.close(protocol.ErrStopping)
		}, protocol.ErrUncertain},
		{"the node has stopped", func(e *entries) {
			e.queue.refuse, e.queue.closed = protocol.ErrStopping, true
			e.queue.Complete([]forward.Completion{e.ran("a", 1, 2)})
		}, protocol.ErrStopping},
	} {
		inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
			u := numbered("a", 9)
			ended := submit(u)
			e.take()
			e.queue.Complete([]forward.Completion{e.ran("a", 0, 1)})
			require.Equal(t, []string{"a1a2a3"}, e.taken(entryWork, true))
			c.end(e)
			require.NoError(t, <-ended, c.what)
			require.Len(t, u.Replies, 9, c.what)
			answered := len(u.Replies)
			for answered > 0 && u.Replies[answered-1].IsError() {
				answered--
				require.Equal(t, c.want.Value(), u.Replies[answered], c.what)
			}
			require.Positive(t, answered)
			require.Equal(t, places(answered), u.Replies[:answered])
		})
	}
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		ended := submit(numbered("a", 9))
		e.take()
		time.Sleep(2*time.Second + 1)
		e.queue.Complete([]forward.Completion{e.ran("a", 0, 0)})
		require.Equal(t, protocol.ErrNoRoom, <-ended, "nothing of it has run")
	})
}

// TestNumbersHaveAnEnd: while a single batch hangs, the numbers for new batches and for rests are bounded.
func TestNumbersHaveAnEnd(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		hangs, rest := submit(numbered("a", 1)), submit(numbered("b", 2))
		e.take()
		e.queue.next = e.queue.low + maxSpan
		e.queue.Complete([]forward.Completion{e.ran("b", 0, 0)})
		require.Equal(t, protocol.ErrNoRoom, <-rest)
		require.Equal(t, protocol.ErrBusy, <-submit(numbered("c", 1)))
		e.queue.Complete([]forward.Completion{e.ran("a", 0, 1)})
		require.NoError(t, <-hangs)
		require.True(t, e.queue.empty())
	})
}
