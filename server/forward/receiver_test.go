package forward

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// TestLinkBelongsToOneIncarnation: a link gets no replies to a previous incarnation of its node.
func TestLinkBelongsToOneIncarnation(t *testing.T) {
	q := NewReceiver(ReceiverConfig{})
	p := &Peer{origin: protocol.Incarnation{Node: "n2", Epoch: 2}}
	q.peers["n2"] = p
	require.Nil(t, q.Peer(protocol.Incarnation{Node: "n2", Epoch: 1}))
	require.Same(t, p, q.Peer(protocol.Incarnation{Node: "n2", Epoch: 2}))
}

// TestOldLinkSaysNothing: a node has one link. Messages of an older link, or of a link of a former leadership, have no
// effect.
func TestOldLinkSaysNothing(t *testing.T) {
	subscribed := false
	q := NewReceiver(ReceiverConfig{
		Subscribed: func(_ string, yes, _ bool) { subscribed = yes }, QueueBytes: 10,
		Wake: make(chan struct{}, 1),
	})
	ends := make(map[*Peer]net.Conn) // the follower's ends
	link := func(epoch uint64) *Peer {
		conn, other := net.Pipe()
		t.Cleanup(func() { _ = other.Close() })
		p := &Peer{origin: protocol.Incarnation{Node: "n2", Epoch: epoch}, conn: conn}
		ends[p] = other
		require.True(t, q.admit(p))
		require.False(t, subscribed, "a new link has said nothing yet")
		return p
	}
	silent := func(old *Peer) {
		for _, yes := range []bool{true, false} {
			before := subscribed
			q.subscribe(old, yes, false)
			require.Equal(t, before, subscribed)
			require.ErrorIs(t, q.put(old, []Batch{{Body: []byte("x")}}), net.ErrClosed)
		}
		q.dismiss(old)
		_ = ends[old].SetReadDeadline(time.Now().Add(time.Minute))
		_, err := ends[old].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "its connection is closed")
	}
	for term := range uint64(2) {
		q.Open(term + 1)
		first := link(1)
		q.subscribe(first, true, false)
		require.True(t, subscribed)
		second := link(1) // of the same incarnation
		silent(first)
		q.subscribe(second, true, false)
		silent(first)
		require.True(t, subscribed)
		require.Same(t, second, q.Peer(second.origin))
		third := link(2)
		q.subscribe(third, true, false)
		silent(second)
		require.True(t, subscribed)
		require.Same(t, third, q.Peer(third.origin))
		q.Shut()
		require.False(t, subscribed)
		silent(third)
		require.False(t, subscribed)
	}
}

// TestInboxIsEmptyWhenItOpens: batches that were queued when a leadership ended use no room in the next one.
func TestInboxIsEmptyWhenItOpens(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 10, Wake: make(chan struct{}, 1)})
	for term := range uint64(3) {
		q.Open(term + 1)
		conn, other := net.Pipe()
		p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		require.Zero(t, q.bytes)
		require.NoError(t, q.put(p, []Batch{{Body: make([]byte, 20)}}))
		q.Shut()
		require.NoError(t, other.Close())
	}
}

// TestQueueOfALeadershipEndsWithIt: batches that were not taken in a leadership are not in the queue of the next one.
func TestQueueOfALeadershipEndsWithIt(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 100, Wake: make(chan struct{}, 1)})
	for term := range uint64(3) {
		q.Open(term + 1)
		conn, other := net.Pipe()
		p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		require.NoError(t, q.put(p, []Batch{{Seq: 10 * term}, {Seq: 10*term + 1}, {Seq: 10*term + 2}}))
		var taken []uint64
		q.Take(term+1, math.MaxUint64, func(b *Batch) bool {
			taken = append(taken, b.Seq)
			return len(taken) < 2
		})
		require.Equal(t, []uint64{10 * term, 10*term + 1}, taken)
		q.Shut()
		require.NoError(t, other.Close())
	}
}

// TestQueueThatIsNeverEmpty: batches that were taken make room, even if others are always left.
func TestQueueThatIsNeverEmpty(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 100, Wake: make(chan struct{}, 1)})
	q.Open(1)
	conn, other := net.Pipe()
	defer other.Close()
	p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
	require.True(t, q.admit(p))
	require.NoError(t, q.put(p, []Batch{{Seq: 0}}))
	for seq := range uint64(10_000) {
		require.NoError(t, q.put(p, []Batch{{Seq: seq + 1}}))
		taken := 0
		q.Take(1, math.MaxUint64, func(b *Batch) bool {
			if taken++; taken == 1 {
				require.Equal(t, seq, b.Seq)
			}
			return taken == 1
		})
		require.Less(t, len(q.queue), 5000)
	}
}

// TestSmallBatchesPassLargeOnes: large batches enter the queue in their order, as far as their work has room, once
// those before are taken. Batches that arrive meanwhile are queued before them.
func TestSmallBatchesPassLargeOnes(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 100, Wake: make(chan struct{}, 1)})
	for term := range uint64(2) {
		q.Open(term + 1)
		conn, other := net.Pipe()
		p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		put := func(bs ...Batch) {
			for i := range bs {
				bs[i].Body = []byte("x")
			}
			require.NoError(t, q.put(p, bs))
		}
		start := q.Waiting(term+1, 0, false).From
		take := func(room int64, any bool) (work int64, taken []uint64) {
			w := q.Waiting(term+1, room, any)
			q.Take(term+1, w.Until, func(b *Batch) bool {
				taken = append(taken, b.Seq)
				return true
			})
			require.Equal(t, int(w.Until-w.From), len(taken))
			return w.Work, taken
		}
		put(Batch{Seq: 1, Large: true, Work: 6}, Batch{Seq: 2}, Batch{Seq: 3, Large: true, Work: 4},
			Batch{Seq: 4, Large: true, Work: 1}, Batch{Seq: 5, Large: true, Work: 30})
		require.Equal(t, Span{start, start + 1, start + 3, 10}, q.Waiting(term+1, 10, false))
		put(Batch{Seq: 6})
		work, taken := take(10, false)
		require.Zero(t, work, "those before are not taken")
		require.Equal(t, []uint64{2, 1, 3, 6}, taken)
		put(Batch{Seq: 7})
		work, taken = take(10, true)
		require.Equal(t, int64(1), work)
		require.Equal(t, []uint64{7, 4}, taken)
		_, taken = take(10, false)
		require.Empty(t, taken)
		require.Equal(t, 1, q.bytes)
		if term == 0 { // the next leadership has none of these
			work, taken = take(10, true)
			require.Equal(t, int64(30), work)
			require.Equal(t, []uint64{5}, taken)
			put(Batch{Seq: 8, Large: true})
		}
		q.Shut()
		require.NoError(t, other.Close())
	}
}

// TestAbandonedBatchesHoldNoMemory: large batches that their node has given up are removed from the queue. If the queue
// is full, that makes room for the batch that shows it.
func TestAbandonedBatchesHoldNoMemory(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 50, Wake: make(chan struct{}, 1)})
	q.Open(1)
	var peers []*Peer
	for _, node := range []string{"n2", "n3"} {
		conn, other := net.Pipe()
		defer other.Close()
		p := &Peer{origin: protocol.Incarnation{Node: node}, conn: conn}
		require.True(t, q.admit(p))
		for seq := range uint64(3) {
			require.NoError(t, q.put(p, []Batch{{Origin: p.origin, Seq: seq, Large: true, Work: 1, Body: make([]byte, 10)}}))
		}
		peers = append(peers, p)
	}
	require.NoError(t, q.put(peers[0], []Batch{{Origin: peers[0].origin, Seq: 3, Low: 2}}))
	require.Equal(t, 4*10, q.bytes)
	var taken []uint64
	q.Take(1, q.Waiting(1, 10, true).Until, func(b *Batch) bool {
		taken = append(taken, b.Seq)
		return true
	})
	require.Equal(t, []uint64{3, 2, 0, 1, 2}, taken)
	require.Zero(t, q.bytes)
}

// TestLargeBatchesOfTheNextLeadership: batches were admitted and not taken when a leadership ended. In the next one
// they delay neither large batches nor the small ones that wait behind these in a full queue.
func TestLargeBatchesOfTheNextLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 100, Wake: make(chan struct{}, 1)})
		for term := uint64(1); term < 4; term++ {
			q.Open(term)
			conn, other := net.Pipe()
			p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
			require.True(t, q.admit(p))
			require.NoError(t, q.put(p, []Batch{{Seq: 1, Large: true, Work: 5, Body: make([]byte, 200)}}))
			small := make(chan error, 1)
			go func() { small <- q.put(p, []Batch{{Seq: 2}}) }()
			synctest.Wait()
			w := q.Waiting(term, 10, true)
			require.Equal(t, int64(5), w.Work, "term %d", term)
			require.Equal(t, uint64(1), w.Until-w.From)
			if term < 3 { // the leadership ends before the leader takes the batch
				q.Shut()
				require.ErrorIs(t, <-small, net.ErrClosed)
			} else {
				q.Take(term, w.Until, func(*Batch) bool { return true })
				require.NoError(t, <-small)
			}
			require.NoError(t, other.Close())
		}
	})
}

// TestFullQueueIsWaitedFor: a link whose queue is full waits until the leader takes batches, or the link or the
// leadership ends.
func TestFullQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 10, Wake: make(chan struct{}, 1)})
		q.Open(1)
		conn, other := net.Pipe()
		defer other.Close()
		p := &Peer{origin: protocol.Incarnation{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		put := func() <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- q.put(p, []Batch{{Body: make([]byte, 20)}}) }()
			synctest.Wait()
			return ended
		}
		require.NoError(t, <-put())
		second := put()
		require.Empty(t, second)
		q.Take(1, math.MaxUint64, func(*Batch) bool { return true })
		require.NoError(t, <-second)
		third := put()
		require.Empty(t, third)
		next, end := net.Pipe()
		defer end.Close()
		require.True(t, q.admit(&Peer{origin: p.origin, conn: next}))
		require.ErrorIs(t, <-third, net.ErrClosed, "another link has come, and the queue is full")
		p = &Peer{origin: protocol.Incarnation{Node: "n2", Epoch: 1}, conn: next}
		require.True(t, q.admit(p))
		fourth := put()
		require.Empty(t, fourth)
		q.dismiss(p)
		require.ErrorIs(t, <-fourth, net.ErrClosed, "the link has ended")
		p = &Peer{origin: p.origin, conn: next}
		require.True(t, q.admit(p))
		fifth := put()
		require.Empty(t, fifth)
		reader := newPeer(&ReceiverConfig{BatchBytes: 100, QueueBytes: 100, Followers: func() int { return 1 }}, nil, greeting{})
		read := wire.AppendBytes(append(make([]byte, wire.Head), kindRead, 1, 1), "k")
		err := reader.listen(t.Context(), bufio.NewReader(bytes.NewReader(wire.Seal(read))),
			func(bs ...Batch) error { return q.put(p, bs) }, nil)
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, reader.reads, 1, "a read needs no room in the queue")
		q.Shut()
		require.ErrorIs(t, <-fifth, net.ErrClosed)
	})
}

// TestWaitsOfALinkDoNotAddUp: a WAIT that has ended makes room for another.
func TestWaitsOfALinkDoNotAddUp(t *testing.T) {
	p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20, Wait: func(context.Context, int, time.Duration) int { return 1 }},
		nil, greeting{})
	for number := range uint64(3) {
		p.wait(t.Context(), number, 1, 0)
		p.parts.Wait()
		require.Zero(t, p.waits)
	}
}

// TestWaitsOfALinkAreBounded: a link has at most maxWaits open WAITs, and answers further ones at once.
func TestWaitsOfALinkAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20, Quorum: func() int { return 9 }, Wait: func(context.Context, int,
			time.Duration,
		) int {
			time.Sleep(time.Second)
			return 1
		}}, nil, greeting{})
		for number := range uint64(maxWaits + 3) {
			p.wait(t.Context(), number, 1, 0)
		}
		synctest.Wait()
		require.Equal(t, maxWaits, p.waits)
		frame, _ := p.out.take(make([]byte, wire.Head))
		require.Equal(t, 3, bytes.Count(frame, []byte{kindWaited}), "%q", frame)
		p.parts.Wait()
		require.Zero(t, p.waits)
	})
}

// TestSourcesWaitAside: a batch whose sources are being compiled does not delay later batches.
func TestSourcesWaitAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prepared, compile := []string{}, make(chan struct{})
		p := newPeer(&ReceiverConfig{
			BatchBytes: 100,
			Prepare:    func(body []byte) { prepared = append(prepared, string(body)); <-compile },
		}, nil, greeting{})
		var frames []byte
		for i, bodies := range [][]string{{"s1", "a"}, {"s2", "b"}} {
			frame := make([]byte, wire.Head)
			for j, body := range bodies {
				frame = binary.AppendUvarint(append(frame, kindWrite), uint64(2*i+j+1))
				hints := protocol.CreateIfAbsent
				if body[0] == 's' {
					hints |= protocol.LargeScript
				}
				frame = wire.AppendBytes(append(binary.AppendUvarint(frame, 1), byte(hints)), body)
			}
			frames = append(frames, wire.Seal(frame)...)
		}
		var mu sync.Mutex
		var queued []string
		put := func(bs ...Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range bs {
				queued = append(queued, fmt.Sprint(b.Seq, string(b.Body)))
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		p.parts.Go(func() { p.prepare(ctx, put) })
		input := bufio.NewReader(bytes.NewReader(frames))
		require.ErrorIs(t, p.listen(ctx, input, put, func(bool, bool) {}), io.EOF)
		synctest.Wait()
		require.Equal(t, []string{"2a", "4b"}, queued)
		require.Equal(t, []string{"s1"}, prepared)
		compile <- struct{}{}
		synctest.Wait()
		require.Equal(t, []string{"2a", "4b", "1s1"}, queued)
		require.Equal(t, []string{"s1", "s2"}, prepared)
		compile <- struct{}{}
		synctest.Wait()
		require.Equal(t, "3s2", queued[3])

		for range maxUnprepared {
			require.NoError(t, p.queueForCompiler(ctx, Batch{Body: []byte("s")}))
		}
		stop()
		close(compile)
		p.parts.Wait()
		for err := error(nil); err == nil; { // until the end of ctx is seen
			err = p.queueForCompiler(ctx, Batch{})
		}
	})
}
