package forward

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// line has batches that wait in order, as in a node's queue.
type line struct {
	mu       sync.Mutex
	next     uint64
	batches  []*standing
	consumer any
	wake     chan<- struct{}
	answers  map[uint64]Completion
	sent     map[uint64]int // how often each batch was taken
}

type standing struct {
	Batch
	takenBy any
	at      time.Time
}

func newLine() *line { return &line{answers: map[uint64]Completion{}, sent: map[uint64]int{}} }

// add queues a batch, and returns its number.
func (l *line) add(body string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	b := Batch{Seq: l.next, Low: l.oldest(), Body: []byte(body), Count: 1}
	if strings.HasPrefix(body, "source") {
		b.Hints = protocol.LargeScript
	}
	l.batches = append(l.batches, &standing{Batch: b})
	if l.wake != nil {
		notify(l.wake)
	}
	return l.next
}

// oldest returns the number of the first batch that waits.
func (l *line) oldest() uint64 {
	if len(l.batches) == 0 {
		return l.next
	}
	return l.batches[0].Seq
}

func (l *line) Attach(consumer any, wake chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.consumer, l.wake = consumer, wake
	notify(wake)
}

func (l *line) Detach(consumer any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.consumer == consumer {
		l.consumer, l.wake = nil, nil
	}
}

func (l *line) Take(consumer any, visit func(*Batch) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if l.consumer != consumer || b.takenBy == consumer {
			continue
		}
		if !visit(&b.Batch) {
			return
		}
		b.takenBy, b.at = consumer, time.Now()
		l.sent[b.Seq]++
	}
}

func (l *line) Unanswered(consumer any) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if b.takenBy == consumer {
			return time.Since(b.at)
		}
	}
	return 0
}

func (l *line) Has(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if b.Seq == number {
			return true
		}
	}
	return false
}

func (l *line) Complete(cs []Completion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		for i, b := range l.batches {
			if b.Seq == c.Number {
				l.batches = append(l.batches[:i:i], l.batches[i+1:]...)
				l.answers[c.Number] = c
				break
			}
		}
	}
}

// answer returns the reply to a batch, or an empty string if there is none yet.
func (l *line) answer(number uint64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.answers[number]
	switch {
	case !ok:
		return ""
	case c.Err != nil:
		return "error " + c.Err.Error()
	}
	var all []string
	for _, v := range c.Replies {
		all = append(all, v.Str)
	}
	return strings.Join(all, ",")
}

// linked has a leader and a follower, and a record of the functions that they have called.
type linked struct {
	t             *testing.T
	net           *peertest.Network
	receiver      *Receiver
	client        *Client
	writes, reads *line
	log, leaders  *bytes.Buffer // of the follower and of the leader

	mu         sync.Mutex
	record     []string
	silent     bool // the leader applies nothing
	member     func() bool
	onGreeting func()
	running    <-chan struct{} // closed when the leader's end has ended
	ends       func()          // begins the end of both
	stop       func()
}

func (l *linked) tell(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record = append(l.record, fmt.Sprintf(format, args...))
}

func (l *linked) sets(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// takes returns the record since the last call.
func (l *linked) takes() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	record := l.record
	l.record = nil
	return record
}

func oneValue(text string) []protocol.Value { return []protocol.Value{protocol.Bulk(text)} }

// link starts both ends. dialed and accepted may wrap the connections of the follower and of the leader, to break them.
func link(t *testing.T, dialed, accepted func(net.Conn) net.Conn) *linked {
	l := &linked{t: t, net: peertest.New(), writes: newLine(), reads: newLine(), log: &bytes.Buffer{}, leaders: &bytes.Buffer{}}
	listener, err := l.net.Listen("n1:1")
	require.NoError(t, err)
	wake := make(chan struct{}, 1)
	l.receiver = NewReceiver(ReceiverConfig{
		Self: Identity{ID: "n1", About: About{ClientAddr: "one:6379", Release: "r1"}}, Listener: wrapping{listener, accepted},
		Other: func(_ net.Conn, frame []byte) bool { require.NotEmpty(t, frame); return frame[0] == 'o' },
		IsMember: func(_ net.Conn, id string) bool {
			l.mu.Lock()
			member := l.member
			l.mu.Unlock()
			return member == nil || member()
		},
		OnGreeting: func(m Member) { l.tell("leader met %s at %s", m.ID, m.ClientAddr) },
		Status: func() Status {
			return Status{Term: 3, Commit: 7, Members: []Member{{ID: "n1", About: About{Release: "r1"}}}}
		},
		Prepare:    func(body []byte) { l.tell("prepared %s", body) },
		Subscribed: func(id string, yes, _ bool) { l.tell("%s subscribed %v", id, yes) }, Wake: wake,
		Confirm: func(context.Context, time.Time) error { return nil },
		ReadShort: func(body string, _ int, _ time.Time) ([]protocol.Value, string, error) {
			switch body {
			case "long":
				return oneValue("first"), "rest", nil
			case "long and refused":
				return oneValue("first"), "refused", nil
			case "row":
				return nil, body, protocol.ErrBusy
			case "bug":
				return nil, "", errors.New("a bug")
			case "elsewhere":
				return nil, "", ErrElsewhere
			case "half":
				return oneValue(strings.Repeat("x", 700<<10)), "", nil
			case "large":
				return oneValue(strings.Repeat("x", 2<<20)), "", nil
			}
			return oneValue("read " + body), "", nil
		},
		ReadLong: func(replies []protocol.Value, rest string, _ int, _ time.Time) ([]protocol.Value, error) {
			if rest == "refused" {
				return nil, protocol.ErrBusy
			}
			return append(replies, protocol.Bulk("on with "+rest)), nil
		},
		Wait: func(ctx context.Context, nodes int, timeout time.Duration) int {
			select {
			case <-time.After(timeout):
				return nodes + 1
			case <-ctx.Done():
				return 0
			}
		},
		Quorum:         func() int { return 9 },
		CommandTimeout: time.Second, BatchBytes: 1 << 20, ReplyBytes: 1 << 20, QueueBytes: 1 << 20,
		Followers: func() int { return 2 },
		Logger:    slog.New(slog.NewTextHandler(l.leaders, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	dial := l.net.Dial("n2:1")
	l.client = NewClient(ClientConfig{
		Self: Identity{ID: "n2", Epoch: 5, About: About{ClientAddr: "two:6379", NewestVersion: 6}},
		Dial: func(ctx context.Context, node string) (net.Conn, error) {
			conn, err := dial(ctx, node+":1")
			if err != nil {
				return nil, err
			}
			return suspect{dialed(wordy{conn}), l}, nil
		},
		Writes: l.writes, Reads: l.reads, ReplyBytes: 1 << 20,
		Reached: func(leader string) { l.tell("reached %s", leader) }, Refused: func(leader string) {
			l.tell("refused by %s", leader)
		},
		Up: func(leader string) { l.tell("up to %s", leader) }, Down: func(leader string, err error) {
			l.tell("down from %s: %v", leader, err)
		},
		OnGreeting: func(m Member) {
			l.tell("follower met %s at %s", m.ID, m.ClientAddr)
			if l.onGreeting != nil {
				l.onGreeting()
			}
		},
		OnStatus: func(b Status) { l.tell("status %d %d %v", b.Term, b.Commit, b.Members[0].Release) },
		Logger:   slog.New(slog.NewTextHandler(l.log, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	running := make(chan struct{})
	parts.Go(func() {
		require.NoError(t, l.receiver.Run(ctx))
		close(running)
	})
	parts.Go(func() { require.NoError(t, l.client.Run(ctx)) })
	parts.Go(func() { l.apply(ctx, wake) })
	l.running, l.ends = running, cancel
	l.stop = func() { cancel(); parts.Wait() }
	return l
}

// linkedUp runs a test of both ends in virtual time.
func linkedUp(t *testing.T, test func(t *testing.T, l *linked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := link(t, same, same)
		defer l.stop()
		test(t, l)
	})
}

// suspect is a connection that records the calls of Stuck.
type suspect struct {
	net.Conn
	l *linked
}

func (s suspect) Stuck() { s.l.tell("stuck") }

// apply answers the writes of followers.
func (l *linked) apply(ctx context.Context, wake <-chan struct{}) {
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		silent := l.silent
		l.mu.Unlock()
		var all []Batch
		for _, term := range []uint64{1, 2} {
			if w := l.receiver.Waiting(term, 0, false); w.Until > w.From {
				l.receiver.Take(term, w.Until, func(b *Batch) bool { all = append(all, *b); return true })
			}
		}
		for _, b := range all {
			reply := "wrote " + string(b.Body)
			switch {
			case string(b.Body) == "half":
				reply = strings.Repeat("x", 700<<10)
			case string(b.Body) == "large":
				reply = strings.Repeat("x", 3<<19)
			case len(b.Body) > 100<<10:
				reply = "wrote much" // of many longer replies, some might find no room
			}
			if p := l.receiver.Peer(b.Origin); p != nil && !silent && string(b.Body) != "never" {
				p.Reply(b.Seq, oneValue(reply))
				p.Flush()
			}
		}
	}
}

func same(c net.Conn) net.Conn { return c }

// wrapping is a listener that wraps its connections.
type wrapping struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (w wrapping) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.wrap(wordy{c}), nil
}

// wordy is a connection on which an empty frame cannot be written.
type wordy struct{ net.Conn }

func (w wordy) Write(b []byte) (int, error) {
	if bytes.Equal(b, make([]byte, wire.Head)) {
		return 0, errors.New("an empty frame")
	}
	return w.Conn.Write(b)
}

// TestLink: every kind of message is sent over a link, in both directions.
func TestLink(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		require.Nil(t, l.client.Wait(1, 0), "no leader is known")
		l.receiver.Open(1)
		first := l.writes.add("before")
		l.client.SubscribeCommits(true)
		synctest.Wait() // until the client waits for a leader
		l.client.Follow("n1")
		require.ElementsMatch(t, []string{
			"reached n1", "leader met n2 at two:6379", "follower met n1 at one:6379", "up to n1", "n2 subscribed true",
			"status 3 7 r1",
		}, l.takes())
		require.Equal(t, "wrote before", l.writes.answer(first))
		require.EqualValues(t, 6, l.receiver.Usable("n2"))
		time.Sleep(statusInterval)
		require.Equal(t, []string{"status 3 7 r1"}, l.takes())

		source, other := l.writes.add("source of a script"), l.writes.add("other")
		quick, long, row := l.reads.add("quick"), l.reads.add("long"), l.reads.add("row")
		bug, large, elsewhere := l.reads.add("bug"), l.reads.add("large"), l.reads.add("elsewhere")
		refused := l.reads.add("long and refused")
		notify(l.client.conn.wake)
		require.Equal(t, []string{"prepared source of a script"}, l.takes())
		for number, want := range map[uint64]string{source: "wrote source of a script", other: "wrote other"} {
			require.Equal(t, want, l.writes.answer(number))
		}
		for number, want := range map[uint64]string{
			quick: "read quick", long: "first,on with rest", row: "error " + protocol.ErrBusy.Error(), bug: "error " +
				errInternal.Error(),
			large: "error " + errReplyTooLarge.Error(), elsewhere: "", refused: "error " + protocol.ErrBusy.Error(),
		} {
			require.Equal(t, want, l.reads.answer(number))
		}
		require.Zero(t, l.receiver.peers["n2"].readBytes)
		for _, done := range [][]Completion{l.client.conn.wrote, l.client.conn.answered} {
			require.NotZero(t, cap(done))
			for _, c := range done[:cap(done)] {
				require.Zero(t, c, "a reply is kept")
			}
		}
		l.reads.Complete([]Completion{{Number: elsewhere}})

		answer := l.client.Wait(1, 500*time.Millisecond)
		synctest.Wait()
		require.Empty(t, answer)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 2, <-answer)
		require.Empty(t, l.client.conn.waits)
		time.Sleep(statusInterval)
		require.Equal(t, []string{"status 3 7 r1"}, l.takes())
		require.Empty(t, l.client.conn.wrote)
		require.Empty(t, l.client.conn.answered, "the next frame has no answers")
		open := l.client.Wait(1, time.Hour)
		l.client.SubscribeCommits(false)
		synctest.Wait()
		l.client.SubscribeCommits(false)
		require.Equal(t, []string{"n2 subscribed false"}, l.takes())
		for _, yes := range []bool{true, false} {
			l.client.SubscribeCommits(yes)
			require.Equal(t, []string{fmt.Sprint("n2 subscribed ", yes)}, l.takes(), "though nothing else is to be sent")
		}
		l.client.Follow("n1")
		require.Empty(t, l.takes(), "it is followed already")
		l.receiver.Cut(func(id string) bool { return id == "n2" })
		require.Empty(t, l.takes(), "it is a member")

		l.client.Follow("")
		_, there := <-open
		require.False(t, there)
		record := l.takes()
		require.Contains(t, strings.Join(record, "\n"), "down from n1: ")
		require.Contains(t, record, "n2 subscribed false")
		late := l.writes.add("nobody leads")
		time.Sleep(time.Minute)
		require.Empty(t, l.takes())
		require.Zero(t, l.writes.sent[late])
		require.Zero(t, l.net.Connections())
		require.Nil(t, l.receiver.Peer(protocol.Incarnation{Node: "n2", Epoch: 5}))
		require.Equal(t, 1, strings.Count(l.leaders.String(), `msg="link ended" from=n2 error=EOF`), l.leaders)
	})
}

// TestLinkComesAgain: batches without an answer are sent again over the next link, whatever ended the last one.
func TestLinkComesAgain(t *testing.T) {
	for name, breaks := range map[string]func(l *linked){
		"broken":     func(l *linked) { l.net.Break("n1", "n2") },
		"shut":       func(l *linked) { l.receiver.Shut(); l.receiver.Open(2) },
		"cut off":    func(l *linked) { l.receiver.Cut(func(string) bool { return false }) },
		"unanswered": func(*linked) { time.Sleep(2 * SilenceTimeout) },
		"deaf": func(l *linked) {
			l.net.Cut("n1", "n2")
			time.Sleep(2 * SilenceTimeout)
			l.net.Mend("n1", "n2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			linkedUp(t, func(t *testing.T, l *linked) {
				l.receiver.Open(1)
				l.client.SubscribeCommits(true)
				l.client.Follow("n1")
				first := l.writes.add("first")
				require.Contains(t, l.takes(), "up to n1")
				require.Equal(t, "wrote first", l.writes.answer(first))
				l.sets(func() { l.silent = true })
				write := l.writes.add("once more")
				synctest.Wait()
				require.Empty(t, l.writes.answer(write))
				l.sets(func() { l.silent = false })
				breaks(l)
				time.Sleep(time.Second)
				record := l.takes()
				why := map[string]string{"broken": "reset", "unanswered": errUnanswered.Error(), "deaf": "timeout"}[name]
				require.Contains(t, strings.Join(record, "\n"), "down from n1: ")
				require.Contains(t, strings.Join(record, "\n"), cmp.Or(why, errHungUp.Error()))
				require.Equal(t, name == "unanswered" || name == "deaf", slices.Contains(record, "stuck"))
				require.Contains(t, record, "up to n1")
				require.Contains(t, record, "n2 subscribed true")
				require.Equal(t, "wrote once more", l.writes.answer(write))
				require.Equal(t, 2, l.writes.sent[write])
			})
		})
	}
}

// TestNoBatchIsSentWithoutALink: without a link, no WAIT is sent, and no batch is taken. The next link ends that.
func TestNoBatchIsSentWithoutALink(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.Open(1)
		l.client.Follow("n1")
		require.Contains(t, l.takes(), "up to n1")
		l.receiver.Shut()
		record := l.takes()
		require.Contains(t, strings.Join(record, "\n"), "down from n1: ")
		require.Nil(t, l.client.Wait(1, time.Hour))
		require.Nil(t, l.writes.consumer)
		require.Nil(t, l.reads.consumer)
		l.receiver.Open(2)
		time.Sleep(time.Second)
		require.Contains(t, l.takes(), "up to n1")
		require.NotNil(t, l.client.Wait(1, time.Hour))
	})
}

// TestLinkIsRefused: a node that does not lead refuses links, and a leader refuses those of nodes that are no members.
// A follower refuses a link to another node than the one that it dialed.
func TestLinkIsRefused(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.client.Follow("n3")
		require.Contains(t, l.takes(), "refused by n3")
		l.client.Follow("n1")
		record := l.takes()
		require.Contains(t, record, "reached n1", "it does not lead")
		require.NotContains(t, record, "up to n1")
		require.Empty(t, l.log.String())
		time.Sleep(time.Second)
		require.InDelta(t, time.Second/maxRedialPause, len(l.takes()), 5)
		l.sets(func() { l.member = func() bool { return false } })
		l.receiver.Open(1)
		time.Sleep(maxRedialPause)
		require.NotContains(t, l.takes(), "up to n1")
		require.Contains(t, l.log.String(), "refuses the link: this node is no member")
		calls := 0
		l.sets(func() { // removed after the first check
			l.member = func() bool {
				calls++
				if calls == 3 {
					l.tell("known %v", l.receiver.Usable("n2") != 0)
				}
				return calls != 2
			}
		})
		time.Sleep(2 * maxRedialPause)
		record = l.takes()
		require.Contains(t, record, "down from n1: the leader hung up")
		require.Contains(t, record, "known false")
		require.Equal(t, "up to n1", record[len(record)-2], "%v", record)
	})
	linkedUp(t, func(t *testing.T, l *linked) {
		inner := l.client.config.Dial
		l.client.config.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return inner(ctx, "n1") }
		l.receiver.Open(1)
		l.client.Follow("n3")
		record := l.takes()
		require.Contains(t, record, "reached n3")
		require.NotContains(t, record, "up to n3")
	})
}

// TestLargeRepliesOfALink: large replies that have no room together are sent one after the other. Over a slow link they
// may take longer than SilenceTimeout. The follower's own log has the reply to a write that is too large.
func TestLargeRepliesOfALink(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.config.CommandTimeout = time.Hour
		l.receiver.Open(1)
		l.client.Follow("n1")
		synctest.Wait()
		l.net.Limit("n1", "n2", 100<<10)
		halves := []uint64{l.reads.add("half"), l.reads.add("half")}
		time.Sleep(20 * time.Second)
		for _, half := range halves {
			require.Len(t, l.reads.answer(half), 700<<10)
		}
		record := strings.Join(l.takes(), "\n")
		require.Greater(t, strings.Count(record, "status"), 10, "between parts, and behind them")
		require.NotContains(t, record, "down")
		l.net.Limit("n1", "n2", 0)
		for range halves {
			l.writes.add("small")
		}
		half := l.writes.add("half") // no read has its number
		time.Sleep(time.Second)
		require.Len(t, l.writes.answer(half), 700<<10)
		large := l.writes.add("large")
		time.Sleep(2 * time.Second)
		require.Empty(t, l.writes.answer(large))
		l.writes.Complete([]Completion{{Number: large}})

		// More batches at once than a frame has room for.
		body := strings.Repeat("x", 200<<10)
		l.writes.mu.Lock()
		l.writes.wake = nil
		l.writes.mu.Unlock()
		wake := l.client.conn.wake
		var writes, reads []uint64
		for range 12 {
			writes, reads = append(writes, l.writes.add(body)), append(reads, l.reads.add(body))
		}
		notify(wake)
		time.Sleep(time.Second)
		for i := range writes {
			require.Equal(t, "wrote much", l.writes.answer(writes[i]))
			require.NotEmpty(t, l.reads.answer(reads[i]))
		}
		require.NotContains(t, strings.Join(l.takes(), "\n"), "down")
	})
}

// TestStatusBetweenParts: a follower that reads slowly gets a status message each second, between the parts of a large
// reply, even behind a frame that is too large to be kept.
func TestStatusBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, other := net.Pipe()
		p := newPeer(&ReceiverConfig{Status: func() Status { return Status{} }}, conn, greeting{})
		p.out.add(func(dst []byte) []byte { return append(dst, make([]byte, shortBytes)...) })
		require.True(t, send(t, p.out, kindAnswer, 1, replyOf(4<<20), time.Now().Add(time.Hour)))
		ctx, stop := context.WithCancel(t.Context())
		p.parts.Go(func() { p.send(ctx) })
		br := bufio.NewReader(other)
		time.Sleep(statusInterval + 1)
		_, err := wire.Read(br, nil, 2*shortBytes)
		require.NoError(t, err)
		for range 10 {
			time.Sleep(statusInterval)
			frame, err := wire.Read(br, nil, 2*partBytes)
			require.NoError(t, err)
			require.Equal(t, byte(kindStatus), frame[0])
			require.Greater(t, len(frame), partBytes)
		}
		stop()
		_ = other.Close()
		p.parts.Wait()
	})
}

// TestOneAnswerIsMissing: a link on which one batch gets no answer stays while others do.
func TestOneAnswerIsMissing(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.Open(1)
		l.client.Follow("n1")
		l.writes.add("never")
		for range 3 * SilenceTimeout / time.Second {
			time.Sleep(time.Second)
			l.writes.add("other")
		}
		require.NotContains(t, strings.Join(l.takes(), "\n"), "down")
	})
}

// TestLeaderChangesInAGreeting: if the leader changes during a greeting, no batch is sent to the former one.
func TestLeaderChangesInAGreeting(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.onGreeting = func() { l.client.Follow("") }
		l.receiver.Open(1)
		l.client.Follow("n1")
		record := l.takes()
		require.Contains(t, record, "follower met n1 at one:6379")
		require.NotContains(t, record, "up to n1")
	})
}

// TestOtherVersionOfLinks: a node with another version of links gets that verdict, and no link.
func TestOtherVersionOfLinks(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.Open(1)
		conn, err := l.net.Dial("n3:1")(t.Context(), "n1:1")
		require.NoError(t, err)
		hello := greeting{version: linkVersion + 1, id: "n3"}
		_, err = conn.Write(wire.Seal(hello.append(make([]byte, wire.Head), kindHello)))
		require.NoError(t, err)
		welcome, err := readGreeting(bufio.NewReader(conn), kindWelcome)
		require.NoError(t, err)
		require.Equal(t, verdictVersion, welcome.verdict)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.Nil(t, l.receiver.Peer(protocol.Incarnation{Node: "n3"}))
		_ = conn.Close()
	})
}

// TestStrangersOfALink: a connection without a complete greeting gets no answer, and is closed. A node that cannot be
// sent the leader's greeting has no link.
func TestStrangersOfALink(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.Open(1)
		hello := greeting{version: linkVersion, id: "n3"}.append(make([]byte, wire.Head), kindHello)
		short, odd, other := append(make([]byte, wire.Head), kindHello), bytes.Clone(hello), bytes.Clone(hello)
		odd[wire.Head], other[wire.Head] = '?', 'o'
		for _, frame := range [][]byte{nil, short, hello[:len(hello)-1], odd, other} {
			conn, err := l.net.Dial("n3:1")(t.Context(), "n1:1")
			require.NoError(t, err)
			begun, want := time.Now(), greetTimeout
			if frame != nil {
				_, err = conn.Write(wire.Seal(frame))
				require.NoError(t, err)
				want = 0
			}
			_ = conn.SetReadDeadline(begun.Add(2 * greetTimeout))
			said, _ := io.ReadAll(conn)
			require.Empty(t, said)
			require.Equal(t, want, time.Since(begun))
			_ = conn.Close()
		}
		require.Equal(t, 4, strings.Count(l.leaders.String(), `msg="refuse link"`), "what is another's is no link")
		closed, _ := net.Pipe()
		require.NoError(t, closed.Close())
		_, err := l.receiver.greet(closed, hello[wire.Head:])
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.Empty(t, l.receiver.peers)
		require.Equal(t, []string{"n3 subscribed false"}, l.takes(), "no member subscribed")
	})
}

// TestLeaderThatReadsNothing: a leader that does not read the greeting is given up, and so is one that sends none.
func TestLeaderThatReadsNothing(t *testing.T) {
	for _, reads := range []bool{true, false} {
		linkedUp(t, func(t *testing.T, l *linked) {
			l.client.config.Dial = func(context.Context, string) (net.Conn, error) {
				conn, other := net.Pipe()
				if reads {
					go func() { _, _ = io.Copy(io.Discard, other) }()
				}
				return conn, nil
			}
			l.client.Follow("n1")
			require.Equal(t, []string{"reached n1"}, l.takes())
			time.Sleep(greetTimeout + maxRedialPause)
			require.Equal(t, []string{"reached n1"}, l.takes())
		})
	}
}

// TestLinkThatTakesNothingEnds: when the leader reads no more from a link, it does not wait for its own write, which
// the other end does not read.
func TestLinkThatTakesNothingEnds(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		l.receiver.Open(1)
		conn, other := net.Pipe()
		br := bufio.NewReader(other)
		ended := make(chan struct{})
		go func() {
			l.receiver.receive(t.Context(), conn)
			close(ended)
		}()
		hello := greeting{version: linkVersion, id: "n3"}.append(make([]byte, wire.Head), kindHello)
		_, err := other.Write(wire.Seal(hello))
		require.NoError(t, err)
		_, err = readGreeting(br, kindWelcome)
		require.NoError(t, err)
		synctest.Wait() // the first status message waits to be taken
		begun := time.Now()
		_, err = other.Write(wire.Seal(append(make([]byte, wire.Head), '?')))
		require.NoError(t, err)
		<-ended
		require.Equal(t, begun, time.Now())
	})
}

// TestReceiverWaitsForItsParts: Run does not return while a read is being executed.
func TestReceiverWaitsForItsParts(t *testing.T) {
	linkedUp(t, func(t *testing.T, l *linked) {
		release := make(chan struct{})
		l.receiver.config.ReadLong = func([]protocol.Value, string, int, time.Time) ([]protocol.Value, error) {
			<-release
			return nil, ErrElsewhere
		}
		l.receiver.Open(1)
		l.client.Follow("n1")
		l.reads.add("long")
		synctest.Wait()
		l.ends()
		synctest.Wait()
		select {
		case <-l.running:
			t.Error("the receiver has ended before a read")
		default:
		}
		close(release)
		synctest.Wait()
		<-l.running
	})
}

// TestQueueOfWrites: Waiting, Scan and Take agree with a list.
func TestQueueOfWrites(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Subscribed: func(string, bool, bool) {}, QueueBytes: 1 << 20, Wake: make(chan struct{}, 1)})
	q.Open(1)
	p := &Peer{origin: protocol.Incarnation{Node: "n2"}}
	require.True(t, q.admit(p))
	r := rand.New(rand.NewPCG(1, 2))
	var want []uint64
	next, taken := uint64(0), uint64(0)
	for range 3000 {
		for range r.IntN(4) * r.IntN(4) {
			want = append(want, next)
			require.NoError(t, q.put(p, []Batch{{Seq: next, Body: []byte{1}}}))
			next++
		}
		require.Equal(t, Span{From: taken, Large: next, Until: next}, q.Waiting(1, 0, false))
		low, high := taken+r.Uint64N(5), taken+r.Uint64N(9)
		var seen, wanted []uint64
		q.Scan(1, low, high, func(b *Batch) bool { seen = append(seen, b.Seq); return len(seen) < 3 })
		for i := low; i < min(high, next) && len(wanted) < 3; i++ {
			wanted = append(wanted, i)
		}
		require.True(t, slices.Equal(wanted, seen), "%v, not %v", seen, wanted)
		high, seen = taken+r.Uint64N(6), nil
		most := r.IntN(6)
		q.Take(1, high, func(b *Batch) bool {
			if len(seen) == most {
				return false
			}
			seen = append(seen, b.Seq)
			return true
		})
		n := min(most, len(want), int(high-taken))
		require.True(t, slices.Equal(want[:n], seen), "%v, not %v", seen, want[:n])
		want, taken = want[n:], taken+uint64(n)
		require.Equal(t, len(want), q.bytes)
		if len(want) == 0 {
			require.Empty(t, q.queue)
		}
		kept := func(b Batch) bool { return b.Body != nil }
		require.False(t, slices.ContainsFunc(q.queue[:q.first], kept), "what is taken is kept")
		if q.first == 0 {
			require.False(t, slices.ContainsFunc(q.queue[len(q.queue):cap(q.queue)], kept),
				"what has moved to the front is kept behind the end")
		}
	}
	require.Greater(t, next, uint64(5000))
	require.Zero(t, q.Waiting(2, 0, false))
	q.Take(2, next, func(*Batch) bool { t.Error("of another term"); return false })
	q.Scan(2, 0, next, func(*Batch) bool { t.Error("of another term"); return false })
}

var errBroken = errors.New("the connection is broken")

// breaking is a connection whose nth read or write fails. The calls of several connections may count together.
type breaking struct {
	net.Conn
	calls *atomic.Int64
	n     int64
}

func (b breaking) Read(p []byte) (int, error) {
	if b.calls.Add(1) == b.n {
		return 0, errBroken
	}
	return b.Conn.Read(p)
}

func (b breaking) Write(p []byte) (int, error) {
	if b.calls.Add(1) == b.n {
		return 0, errBroken
	}
	return b.Conn.Write(p)
}

// TestFailuresOfALink: one read or write of either end fails. Everything is answered once there is another link, and
// nothing of the former link is left.
func TestFailuresOfALink(t *testing.T) {
	for _, follower := range []bool{true, false} {
		t.Run(fmt.Sprint("follower ", follower), func(t *testing.T) {
			n, reached := int64(1), true
			for ; reached && n < 100; n++ {
				synctest.Test(t, func(t *testing.T) {
					var calls atomic.Int64
					breaks := func(c net.Conn) net.Conn { return breaking{c, &calls, n} }
					dialed, accepted := same, breaks
					if follower {
						dialed, accepted = breaks, same
					}
					l := link(t, dialed, accepted)
					l.receiver.Open(1)
					l.client.SubscribeCommits(true)
					l.client.Follow("n1")
					synctest.Wait()
					for round := range 3 {
						write, read := l.writes.add(fmt.Sprint(round)), l.reads.add("long")
						time.Sleep(time.Second + 10*minRedialPause) // while status messages are sent
						require.Equal(t, fmt.Sprint("wrote ", round), l.writes.answer(write))
						require.Equal(t, "first,on with rest", l.reads.answer(read))
					}
					downs := slices.DeleteFunc(l.takes(), func(call string) bool { return !strings.HasPrefix(call, "down") })
					require.LessOrEqual(t, len(downs), 1)
					if follower && len(downs) > 0 && n > 2 { // the first two are the greeting's
						require.Contains(t, downs[0], errBroken.Error(), "the cause, and not its consequences")
					}
					require.Equal(t, 1, l.net.Connections())
					reached = calls.Load() >= n
					l.stop()
					require.Zero(t, l.net.Connections())
				})
			}
			require.Greater(t, n, int64(5))
			require.Less(t, n, int64(100))
		})
	}
}
