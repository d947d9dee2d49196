package forward

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// waiting has batches that wait, by number, without bodies.
type waiting struct {
	numbers  map[uint64]bool
	consumer any
}

func newWaiting(n int) *waiting {
	w := &waiting{numbers: make(map[uint64]bool)}
	for number := range uint64(n) {
		w.numbers[number+1] = true
	}
	return w
}

func (w *waiting) Attach(consumer any, _ chan<- struct{}) { w.consumer = consumer }

func (w *waiting) Detach(consumer any) {
	if w.consumer == consumer {
		w.consumer = nil
	}
}

func (w *waiting) Take(any, func(*Batch) bool) {}

// Unanswered returns 0, as if no answer were late.
func (w *waiting) Unanswered(any) time.Duration { return 0 }

func (w *waiting) Has(number uint64) bool { return w.numbers[number] }

func (w *waiting) Complete(cs []Completion) {
	for _, c := range cs {
		delete(w.numbers, c.Number)
	}
}

// aConnection returns the follower's end of a connection, without a network.
func aConnection(limit int, batches int) *connection {
	return newConnection(&ClientConfig{ReplyBytes: limit, Reads: newWaiting(batches), Writes: newWaiting(batches)}, "n1",
		nil)
}

// drain takes all queued frames. It returns the numbers of the replies in the order of their completion, the replies,
// and the number of frames.
func drain(t *testing.T, o *outbox, c *connection) (order []uint64, replies map[uint64][]protocol.Value, frames int) {
	t.Helper()
	replies = make(map[uint64][]protocol.Value)
	for more := true; more; frames++ {
		var frame []byte
		frame, more = o.take(make([]byte, wire.Head))
		require.LessOrEqual(t, len(frame), partBytes+1000)
		f := wire.Fields[string]{Rest: string(frame[wire.Head:])}
		for f.More() {
			switch kind := f.Kind(); kind {
			case kindAnswer, kindWrote:
				number := f.Number()
				order, replies[number] = append(order, number), values(&f)
			case kindPart:
				of, whole, err := c.part(&f)
				require.NoError(t, err)
				if whole != nil {
					order, replies[of.number] = append(order, of.number), whole
				}
			default:
				require.FailNow(t, "kind", "%q", kind)
			}
		}
		require.NoError(t, f.Err)
	}
	return order, replies, frames
}

func replyOf(size int) []protocol.Value {
	return []protocol.Value{protocol.OK, protocol.Array(protocol.Bulk(strings.Repeat("x", size)),
		protocol.Integer(int64(size)))}
}

func send(t *testing.T, o *outbox, kind byte, number uint64, replies []protocol.Value, deadline time.Time) bool {
	t.Helper()
	size, ok := protocol.SizesWithin(replies, math.MaxInt)
	require.True(t, ok)
	return o.put(kind, number, replies, size, deadline)
}

// TestSmallRepliesGoFirst: short replies are sent before parts of large ones. Of the large ones, the one with the
// fewest bytes left is sent first.
func TestSmallRepliesGoFirst(t *testing.T) {
	o := newOutbox(8 << 20)
	c := aConnection(8<<20, 10)
	soon := time.Now().Add(time.Minute)
	sizes := map[uint64]int{1: 3 << 20, 2: 1 << 20, 3: 100, 4: 70 << 10, 5: 10}
	for number := uint64(1); number <= 5; number++ {
		require.True(t, send(t, o, kindAnswer, number, replyOf(sizes[number]), soon))
	}
	require.False(t, send(t, o, kindAnswer, 6, replyOf(7<<20), soon), "no room")
	require.False(t, o.fits(7<<20))
	require.True(t, o.fits(1<<20))
	order, replies, _ := drain(t, o, c)
	require.Equal(t, []uint64{3, 5, 4, 2, 1}, order)
	for number, size := range sizes {
		require.Equal(t, replyOf(size), replies[number])
	}
	require.Empty(t, c.parts)
	require.Zero(t, c.partBytes)
	require.Zero(t, o.bytes)
	require.True(t, send(t, o, kindWrote, 6, replyOf(20<<20), soon), "one alone may be larger than the limit")
	require.True(t, send(t, o, kindAnswer, 7, replyOf(10), soon), "a small one needs no room")
	require.False(t, o.fits(largeReply))
}

// TestReplyPassesOneThatIsUnderWay: a small reply is sent between the parts of a large one.
func TestReplyPassesOneThatIsUnderWay(t *testing.T) {
	o := newOutbox(8 << 20)
	soon := time.Now().Add(time.Minute)
	require.True(t, send(t, o, kindAnswer, 1, replyOf(4<<20), soon))
	_, more := o.take(make([]byte, wire.Head))
	require.True(t, more)
	require.True(t, send(t, o, kindAnswer, 2, replyOf(10), soon))
	require.True(t, send(t, o, kindAnswer, 3, replyOf(300<<10), soon))
	frame, _ := o.take(make([]byte, wire.Head))
	require.Equal(t, byte(kindAnswer), frame[wire.Head])
	require.Equal(t, byte(2), frame[wire.Head+1])
	p := o.large[0]
	require.Equal(t, uint64(3), p.number)
}

// TestReadWaitsForTheSender: while too many bytes of short messages are queued, a read waits, and has them sent.
func TestReadWaitsForTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20}, nil, greeting{})
		p.out.add(func(dst []byte) []byte { return append(dst, make([]byte, shortBytes)...) })
		served := make(chan bool, 1)
		go func() { served <- p.serve(t.Context(), &forwardedRead{}, protocol.ErrNoLeader) }()
		synctest.Wait()
		require.Empty(t, served)
		require.Len(t, p.wake, 1)
		p.out.take(make([]byte, wire.Head))
		require.True(t, <-served)

		p.out.add(func(dst []byte) []byte { return append(dst, make([]byte, shortBytes)...) })
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.True(t, p.serve(ctx, &forwardedRead{}, protocol.ErrNoLeader), "the link is closed")
	})
}

// TestReplyThatGrows: a reply that found no room is read again when there is room. If it has grown, it waits for room
// again.
func TestReplyThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := []int{500 << 10, 700 << 10, 600 << 10}
		reads, confirmed := 0, 0
		p := newPeer(&ReceiverConfig{
			ReplyBytes: 1 << 20, QueueBytes: 1 << 20, Followers: func() int { return 1 }, CommandTimeout: time.Minute,
			Confirm: func(context.Context, time.Time) error { confirmed++; return nil },
			ReadShort: func(string, int, time.Time) ([]protocol.Value, string, error) {
				reads++
				return replyOf(sizes[reads-1]), "", nil
			},
		}, nil, greeting{})
		ctx, stop := context.WithCancel(t.Context())
		p.parts.Go(func() { p.answerReads(ctx) })
		soon := time.Now().Add(time.Minute)
		require.True(t, send(t, p.out, kindAnswer, 8, replyOf(300<<10), soon))
		require.True(t, send(t, p.out, kindAnswer, 9, replyOf(500<<10), soon))
		p.queueReads([]forwardedRead{{number: 1, count: 1, deadline: soon}})
		synctest.Wait()
		require.Equal(t, 1, reads)
		for large := 2; large > 0; large-- {
			require.Len(t, p.out.large, large)
			for len(p.out.large) == large && reads == 3-large {
				p.out.take(make([]byte, wire.Head))
				synctest.Wait()
			}
			require.Equal(t, 4-large, reads)
		}
		_, replies, _ := drain(t, p.out, aConnection(1<<20, 10))
		require.Equal(t, map[uint64][]protocol.Value{1: replyOf(600 << 10)}, replies)
		require.Zero(t, p.readBytes)
		require.Equal(t, 1, confirmed, "room is nothing to ask other nodes about")
		stop()
		p.parts.Wait()
	})
}

// TestReplyWithoutRoomIsNotKept: a reply that finds no room is dropped. It is read again later.
func TestReplyWithoutRoomIsNotKept(t *testing.T) {
	p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20}, nil, greeting{})
	soon := time.Now().Add(time.Minute)
	require.True(t, send(t, p.out, kindAnswer, 1, replyOf(900<<10), soon))
	f := forwardedRead{number: 2, count: 1, deadline: soon, read: true, replies: replyOf(500 << 10)}
	require.False(t, p.serve(t.Context(), &f, nil))
	require.Nil(t, f.replies)
	require.False(t, f.read)
}

// TestReadThatIsLateIsNotMade: a read that has not begun before its deadline is not executed, and gets an error.
func TestReadThatIsLateIsNotMade(t *testing.T) {
	p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20}, nil, greeting{})
	require.True(t, p.serve(t.Context(), &forwardedRead{number: 2, count: 1, deadline: time.Now()}, nil))
	frame, _ := p.out.take(make([]byte, wire.Head))
	c := aConnection(1<<20, 2)
	f := wire.Fields[string]{Rest: string(frame[wire.Head:])}
	require.NoError(t, c.message(&f))
	require.Equal(t, []Completion{{Number: 2, Err: protocol.ErrNoLeader}}, c.answered)
}

// TestLateReplyIsDropped: after its deadline a reply is not sent further, and the follower drops the parts that it has.
func TestLateReplyIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(8 << 20)
		c := aConnection(8<<20, 10)
		soon := time.Now().Add(time.Second)
		require.True(t, send(t, o, kindAnswer, 1, replyOf(1<<20), soon))
		require.True(t, send(t, o, kindWrote, 2, replyOf(2<<20), soon))
		frame, _ := o.take(make([]byte, wire.Head))
		f := wire.Fields[string]{Rest: string(frame[wire.Head+1:])}
		_, _, err := c.part(&f)
		require.NoError(t, err)
		require.Len(t, c.parts, 1)
		time.Sleep(2 * time.Second)
		order, _, frames := drain(t, o, c)
		require.Empty(t, order)
		require.Equal(t, 2, frames)
		require.Empty(t, c.parts)
		require.Zero(t, c.partBytes)
		require.Zero(t, o.bytes)
	})
}

// TestPartsAreBounded: no parts are kept of a reply that no batch waits for, and the bytes of other parts are bounded.
func TestPartsAreBounded(t *testing.T) {
	c := aConnection(1<<20, 2)
	part := func(number uint64, state byte, text string) error {
		f := wire.Fields[string]{Rest: string(binary.AppendUvarint([]byte{kindAnswer, state}, number)) + text}
		_, _, err := c.part(&f)
		return err
	}
	require.NoError(t, part(99, partMore, strings.Repeat("x", 4<<20)))
	require.Empty(t, c.parts)
	require.NoError(t, part(1, partMore, strings.Repeat("x", 1<<20)))
	require.NoError(t, part(2, partMore, strings.Repeat("x", 1<<20)))
	c.config.Reads.Complete([]Completion{{Number: 1}})
	require.NoError(t, part(1, partMore, "x"))
	require.Equal(t, 1<<20, c.partBytes, "the first was answered meanwhile")
	require.ErrorIs(t, part(2, partMore, strings.Repeat("x", 1<<20+1)), wire.ErrCorrupt)

	c = aConnection(1<<20, 2)
	require.ErrorIs(t, part(1, partLast, "\xff"), wire.ErrCorrupt)
	require.ErrorIs(t, part(2, partLast, "\x00 and more"), wire.ErrCorrupt)
	f := wire.Fields[string]{Rest: "A"}
	_, _, err := c.part(&f)
	require.ErrorIs(t, err, wire.ErrCorrupt)
}

// TestBrokenMessageEndsTheLink: an invalid message is an error of the connection, at either end.
func TestBrokenMessageEndsTheLink(t *testing.T) {
	c := aConnection(1<<20, 2)
	f := wire.Fields[string]{Rest: string([]byte{kindPart})}
	require.ErrorIs(t, c.message(&f), wire.ErrCorrupt)
	frame := wire.Seal(append(make([]byte, wire.Head), kindWrote, 1))
	require.ErrorIs(t, c.listen(bufio.NewReader(bytes.NewReader(frame))), wire.ErrCorrupt)
	require.True(t, c.config.Writes.Has(1), "half an answer is none")
	for _, message := range [][]byte{{'?'}, {kindStatus}, {kindStatus, 3}, {kindStatus, 3, 7}} {
		frame := wire.Seal(append(make([]byte, wire.Head), message...))
		require.ErrorIs(t, c.listen(bufio.NewReader(bytes.NewReader(frame))), wire.ErrCorrupt, "half a status is none")
	}
	many := binary.AppendUvarint(nil, math.MaxInt64)
	for _, message := range [][]byte{{kindWrote, 1}, {kindAnswer, 1}, {kindStatus, 3, 7}} {
		frame := wire.Seal(append(append(make([]byte, wire.Head), message...), many...))
		require.ErrorIs(t, c.listen(bufio.NewReader(bytes.NewReader(frame))), wire.ErrCorrupt, "a count alone")
	}

	for _, message := range [][]byte{ // of a follower
		{kindWrite, 1}, {kindWrite, 1, 1, byte(protocol.LargeScript)}, {kindRead, 1}, {kindWait, 1},
	} {
		p := newPeer(&ReceiverConfig{
			BatchBytes: 1 << 20, Quorum: func() int { return 1 },
			Wait: func(context.Context, int, time.Duration) int { t.Error("half a WAIT is one"); return 0 },
		}, nil, greeting{})
		frame := wire.Seal(append(make([]byte, wire.Head), message...))
		put := func(...Batch) error { t.Error("half a write is one"); return nil }
		err := p.listen(t.Context(), bufio.NewReader(bytes.NewReader(frame)), put, nil)
		require.ErrorIs(t, err, wire.ErrCorrupt)
		p.parts.Wait()
		require.Empty(t, p.reads)
		require.Empty(t, p.sources)
	}
}

// TestReadsAreConfirmed: a read is executed only after a check has confirmed that this node leads.
func TestReadsAreConfirmed(t *testing.T) {
	for _, refusal := range []error{nil, protocol.ErrNoLeader} {
		synctest.Test(t, func(t *testing.T) {
			var steps []string
			p := newPeer(&ReceiverConfig{
				ReplyBytes: 1 << 20, QueueBytes: 1 << 20, Followers: func() int { return 1 }, CommandTimeout: time.Minute,
				Confirm: func(context.Context, time.Time) error {
					steps = append(steps, "confirm")
					return refusal
				},
				ReadShort: func(string, int, time.Time) ([]protocol.Value, string, error) {
					steps = append(steps, "read")
					return oneValue("v"), "", nil
				},
			}, nil, greeting{})
			ctx, stop := context.WithCancel(t.Context())
			p.parts.Go(func() { p.answerReads(ctx) })
			p.queueReads([]forwardedRead{{number: 1, count: 1, deadline: time.Now().Add(time.Minute)}})
			synctest.Wait()
			if refusal == nil {
				require.Equal(t, []string{"confirm", "read"}, steps)
			} else {
				require.Equal(t, []string{"confirm"}, steps)
			}
			stop()
			p.parts.Wait()
		})
	}
}

// TestLinkIsBoundedAtTheLeader: what waits for one follower on the leader is bounded, however slowly the follower
// reads.
func TestLinkIsBoundedAtTheLeader(t *testing.T) {
	config := &ReceiverConfig{
		ReplyBytes: 8 << 20, QueueBytes: 10_000, Followers: func() int { return 2 },
		CommandTimeout: time.Second,
	}
	p := newPeer(config, nil, greeting{})
	for seq := range uint64(1 << 18) {
		p.Reply(seq, replyOf(50))
	}
	require.Less(t, len(p.out.short), 2*shortBytes+200, "the rest is in the follower's own log")
	p.Reply(1, replyOf(9<<20))
	require.Empty(t, p.out.large, "above the limit of replies")

	p.out = newOutbox(8 << 20)
	p.queueReads([]forwardedRead{
		{number: 1, body: strings.Repeat("x", 4000)},
		{number: 2, body: strings.Repeat("x", 4000)},
		{number: 3},
	})
	require.Len(t, p.reads, 2, "each of two followers has its half")
	require.Len(t, p.wake, 1, "the refusal waits for no check")
	frame, _ := p.out.take(make([]byte, wire.Head))
	f := wire.Fields[string]{Rest: string(frame[wire.Head:])}
	require.Equal(t, byte(kindRefuse), f.Kind())
	require.Equal(t, uint64(2), f.Number())
	for i := range p.reads {
		require.True(t, p.serve(context.Background(), &p.reads[i], protocol.ErrNoLeader))
	}
	require.Zero(t, p.readBytes)

	// A read above the share is accepted if no other waits, and excludes others until it is answered.
	for range 3 {
		p.reads, p.out = nil, newOutbox(8<<20)
		p.queueReads([]forwardedRead{{number: 4, body: strings.Repeat("x", 6000)}, {number: 5}})
		require.Len(t, p.reads, 1)
		require.Equal(t, uint64(4), p.reads[0].number)
		require.True(t, p.serve(context.Background(), &p.reads[0], protocol.ErrNoLeader))
		require.Zero(t, p.readBytes)
	}
	p.reads = nil
	p.queueReads([]forwardedRead{{number: 6, read: true, replies: replyOf(9 << 20)}})
	require.True(t, p.serve(context.Background(), &p.reads[0], nil))
	require.Empty(t, p.out.large, "above the limit of replies")
}

// TestNothingIsKeptOfWhatWasSent: the heap keeps no pointer to a reply that was removed, since a large reply shares
// memory with the state.
func TestNothingIsKeptOfWhatWasSent(t *testing.T) {
	var h bySize[*parcel]
	for left := range 5 {
		heap.Push(&h, &parcel{left: left})
	}
	for left := range 5 {
		require.Equal(t, left, heap.Pop(&h).(*parcel).left)
	}
	for _, kept := range h[:5] {
		require.Nil(t, kept)
	}
}
