package forward

import (
	"context"
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

// TestLateSessionIsNotAttached: a connection that is ready when its leader is no longer followed gets no batches.
func TestLateSessionIsNotAttached(t *testing.T) {
	writes := newWaiting(0)
	c := NewClient(ClientConfig{Writes: writes, Reads: newWaiting(0)})
	c.Follow("n2")
	require.True(t, c.attach(&connection{leader: "n2"}))
	c.Follow("")
	require.False(t, c.attach(&connection{leader: "n2"}))
	require.Nil(t, c.conn)
	require.Nil(t, writes.consumer)
	c.Follow("n3")
	require.False(t, c.attach(&connection{leader: "n2"}))
}

// TestGreetingThatDoesNotCome: a client stops waiting for the greeting when its context ends.
func TestGreetingThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed, leader := net.Pipe()
		defer leader.Close()
		c := NewClient(ClientConfig{
			Dial:    func(context.Context, string) (net.Conn, error) { return dialed, nil },
			Reached: func(string) {}, Writes: newWaiting(0), Reads: newWaiting(0),
		})
		go func() { _, _ = io.Copy(io.Discard, leader) }()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.connect(ctx, "n2")
			ended <- err
		}()
		synctest.Wait()
		require.Empty(t, ended)
		begin := time.Now()
		stop()
		require.Error(t, <-ended)
		require.Zero(t, time.Since(begin))
	})
}

// TestWaitTogether: WAITs are sent while connections are attached and detached.
func TestWaitTogether(t *testing.T) {
	c := NewClient(ClientConfig{Writes: newWaiting(0), Reads: newWaiting(0)})
	together(
		func(int) {
			c.Follow("n2")
			c.attach(newConnection(&c.config, "n2", nil))
		},
		func(int) { c.Follow("") },
		func(int) { c.Wait(1, time.Second) },
	)
}

// TestFramesAreBounded: a frame takes batches up to its size, or one larger batch alone. A large buffer is not kept.
func TestFramesAreBounded(t *testing.T) {
	c := newConnection(&ClientConfig{Writes: newWaiting(0), Reads: newWaiting(0)}, "n2", nil)
	for _, add := range []func(*Batch) bool{c.addWrite, c.addRead} {
		c.gather()
		require.True(t, add(&Batch{Body: make([]byte, wire.Gather*2/3)}))
		require.False(t, add(&Batch{Body: make([]byte, wire.Gather*2/3)}))
		require.True(t, add(&Batch{Body: make([]byte, wire.Gather/4)}))
		c.gather()
		require.True(t, add(&Batch{Body: make([]byte, 8*wire.Gather)}))
		c.frame = wire.Kept(c.frame)
		require.Nil(t, c.frame)
	}
	c.gather()
	require.Len(t, c.frame, wire.Head)
	require.NotNil(t, wire.Kept(c.frame))
}

// together runs each function on several goroutines at the same time, for the race detector.
func together(functions ...func(round int)) {
	var all sync.WaitGroup
	for _, f := range functions {
		for range 2 {
			all.Go(func() {
				for round := range 50 {
					f(round)
				}
			})
		}
	}
	all.Wait()
}

// TestReceiverTogether: links are admitted and dismissed, and bring writes, at the same time.
func TestReceiverTogether(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 1 << 20, Wake: make(chan struct{}, 1)})
	link := func(node string) func(int) {
		return func(round int) {
			q.Open(1)
			conn, _ := net.Pipe()
			p := &Peer{origin: protocol.Incarnation{Node: node, Epoch: uint64(round)}, conn: conn}
			if q.admit(p) {
				q.subscribe(p, round%2 == 0, false)
				_ = q.put(p, []Batch{{Body: make([]byte, 10)}, {Body: make([]byte, 20)}})
			}
			q.dismiss(p)
		}
	}
	together(link("n1"), link("n2"),
		func(int) { q.Usable("n1") },
		func(int) { q.Peer(protocol.Incarnation{Node: "n1"}) },
		func(int) { q.Cut(func(id string) bool { return id == "n1" }) },
		func(int) { q.Scan(1, 0, math.MaxUint64, func(*Batch) bool { return true }) },
		func(int) {
			q.Take(1, q.Waiting(1, 0, false).Until, func(*Batch) bool { return true })
		},
		func(round int) {
			if round%10 == 0 {
				q.Shut()
			}
		},
	)
	q.Open(1)
	q.Take(1, math.MaxUint64, func(*Batch) bool { return true })
	require.Zero(t, q.bytes)
}

// TestLinkTogether: all calls of each end of a link are made at the same time.
func TestLinkTogether(t *testing.T) {
	p := newPeer(&ReceiverConfig{
		ReplyBytes: 1 << 20, QueueBytes: 10_000, Followers: func() int { return 1 }, CommandTimeout: time.Minute,
		Status: func() Status { return Status{} }, Quorum: func() int { return 1 },
		Wait:    func(context.Context, int, time.Duration) int { return 1 },
		Confirm: func(context.Context, time.Time) error { return nil },
		ReadShort: func(body string, _ int, _ time.Time) ([]protocol.Value, string, error) {
			return oneValue(body), body, nil
		},
		ReadLong: func(replies []protocol.Value, _ string, _ int, _ time.Time) ([]protocol.Value, error) {
			return replies, nil
		},
	}, nil, greeting{})
	ctx, stop := context.WithCancel(t.Context())
	p.parts.Go(func() { p.answerReads(ctx) })
	p.parts.Go(func() {
		for ctx.Err() == nil {
			p.out.take(make([]byte, wire.Head))
		}
	})
	soon := time.Now().Add(time.Minute)
	together(
		func(round int) { p.wait(ctx, uint64(round), 1, 0) },
		func(round int) {
			p.queueReads([]forwardedRead{{number: uint64(round), body: fmt.Sprint(round), deadline: soon}})
		},
		func(round int) { p.Reply(uint64(round), replyOf(100<<10)) },
		func(int) { p.putStatus() },
		func(int) { p.out.holds(100); p.out.fits(100 << 10) },
	)
	stop()
	p.parts.Wait()
	require.Zero(t, p.waits)

	c := NewClient(ClientConfig{Writes: newLine(), Reads: newLine()})
	conn := newConnection(&c.config, "n1", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn.frame = make([]byte, wire.Head)
		for range 100 {
			conn.gather()
		}
	}()
	together(
		func(round int) { c.Follow([]string{"n1", ""}[round%2]) },
		func(round int) { c.SubscribeCommits(round%2 == 0) },
		func(int) { c.Wait(1, 0) },
		func(int) { c.attach(conn) },
		func(round int) { conn.answer(uint64(round), 1) },
		func(int) { conn.sendWait(1, 0) },
		func(int) { conn.hangUp() },
	)
	<-done
	conn.hangUp()
	require.Empty(t, conn.waits)
}
