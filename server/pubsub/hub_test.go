package pubsub

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// listener is a client that keeps what it receives.
type listener struct {
	mu    sync.Mutex
	heard []string
	cut   string
	from  map[*push.Message]bool
}

func (l *listener) Post(m *push.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(m.AppendFrom(nil, protocol.RESP2, 0, m.Len(protocol.RESP2)))
	l.heard = append(l.heard, strings.Join(strings.Fields(text), " "))
	if l.from == nil {
		l.from = make(map[*push.Message]bool)
	}
	l.from[m] = true
}

func (l *listener) Cut(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = why
}

// take returns the messages since the last call, after everything published has been posted.
func (l *listener) take(h *Hub) []string {
	h.Settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := l.heard
	l.heard = nil
	return heard
}

func (l *listener) isCut(h *Hub) string {
	h.Settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func newHub() *Hub { return New(slog.New(slog.DiscardHandler)) }

func publish(h *Hub, channel, payload string) {
	h.Events([]event.Event{{Kind: event.Published, Name: channel, Payload: payload}})
}

func TestKinds(t *testing.T) {
	h, l := newHub(), &listener{}
	c := h.Client(l)
	require.True(t, c.Subscribe(Channel, "c"))
	require.False(t, c.Subscribe(Channel, "c"))
	require.True(t, c.Subscribe(Pattern, "c*"))
	require.True(t, c.Subscribe(Shard, "c"))
	publish(h, "c", "x")
	publish(h, "cc", "y")
	publish(h, "d", "z")
	h.Events([]event.Event{{Kind: event.Published, Name: "c", Payload: "s", Sharded: true}})
	h.Events([]event.Event{{Kind: event.Notified, Classes: event.ClassKeyspace, Key: "k", Name: "del"}})
	require.Equal(t, []string{
		"*3 $7 message $1 c $1 x", "*4 $8 pmessage $2 c* $1 c $1 x", "*4 $8 pmessage $2 c* $2 cc $1 y",
		"*3 $8 smessage $1 c $1 s",
	}, l.take(h))
	require.Equal(t, 2, h.Receivers("c", false))
	require.Equal(t, 1, h.Receivers("c", true))
	require.Equal(t, 0, h.Receivers("d", false))
	for kind := range kinds {
		require.Equal(t, 1, c.Count(kind))
		require.Equal(t, 1, h.Topics(kind))
	}
	require.Equal(t, 1, h.Clients())

	require.True(t, c.Unsubscribe(Channel, "c"))
	require.False(t, c.Unsubscribe(Channel, "c"))
	publish(h, "c", "x")
	require.Equal(t, []string{"*4 $8 pmessage $2 c* $1 c $1 x"}, l.take(h))
	c.Leave()
	publish(h, "c", "x")
	require.Empty(t, l.take(h))
	require.Zero(t, h.Clients())
	require.Zero(t, h.subscriptions.Load())
}

func TestKeyspaceEvents(t *testing.T) {
	h, l := newHub(), &listener{}
	h.Client(l).Subscribe(Pattern, "__key*__:*")
	h.Events([]event.Event{{
		Kind: event.Notified, Classes: event.ClassKeyspace | event.ClassKeyevent, DB: 3, Key: "k",
		Name: "del",
	}})
	require.Equal(t, []string{
		"*4 $8 pmessage $10 __key*__:* $16 __keyspace@3__:k $3 del",
		"*4 $8 pmessage $10 __key*__:* $18 __keyevent@3__:del $1 k",
	}, l.take(h))
}

// TestSubscriptionBegins shows that a subscription receives the messages published after it, and not those that were in
// the queue before.
func TestSubscriptionBegins(t *testing.T) {
	h, busy, late := newHub(), &listener{}, &listener{}
	h.Client(busy).Subscribe(Channel, "c")
	h.mu.RLock() // nothing is delivered
	publish(h, "c", "before")
	h.mu.RUnlock()
	hold := h.hold(t)
	publish(h, "c", "queued")
	go hold()
	c := h.Client(late)
	c.Subscribe(Channel, "c")
	publish(h, "c", "later")
	require.Equal(t, []string{"*3 $7 message $1 c $5 later"}, late.take(h))
	require.Len(t, busy.take(h), 3)
}

// hold keeps messages in the queue until release is called.
func (h *Hub) hold(t *testing.T) (release func()) {
	h.Settle()
	h.queue.mu.Lock()
	defer h.queue.mu.Unlock()
	require.False(t, h.queue.running)
	h.queue.running = true
	return h.run
}

// TestEncodedOnce shows that the subscribers of a channel share one message.
func TestEncodedOnce(t *testing.T) {
	h := newHub()
	a, b := &listener{}, &listener{}
	h.Client(a).Subscribe(Channel, "c")
	h.Client(b).Subscribe(Channel, "c")
	publish(h, "c", "x")
	a.take(h)
	require.Len(t, a.from, 1)
	require.Equal(t, a.from, b.from)
}

// TestGap shows that a gap disconnects the subscribers from before, and not those that subscribe later.
func TestGap(t *testing.T) {
	h, before, later := newHub(), &listener{}, &listener{}
	h.Client(before).Subscribe(Channel, "c")
	release := h.hold(t)
	h.Gap()
	c := h.Client(later)
	c.Subscribe(Channel, "c")
	publish(h, "c", "x")
	release()
	require.Equal(t, whyGap, before.isCut(h))
	require.Empty(t, later.isCut(h))
	require.Len(t, later.take(h), 1)
}

// TestOverflow shows that if messages exceed the bound of the queue, all subscribers are disconnected, so that no
// message is lost unnoticed.
func TestOverflow(t *testing.T) {
	h, l := newHub(), &listener{}
	c := h.Client(l)
	c.Subscribe(Channel, "c")
	release := h.hold(t)
	big := strings.Repeat("x", queueBytes/8)
	for range 9 {
		publish(h, "c", big)
	}
	require.Less(t, h.queue.bytes, queueBytes)
	release()
	require.Equal(t, whyGap, l.isCut(h))
	c.Leave()
	l.cut = ""
	l.take(h)
	c.Subscribe(Channel, "c")
	publish(h, "c", "x")
	require.Len(t, l.take(h), 1)
	require.Empty(t, l.isCut(h))
}

// TestPatternsModel compares the receivers of messages with those found by matching each pattern, while patterns are
// added and removed.
func TestPatternsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(letters string) string {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteByte(letters[random.IntN(len(letters))])
		}
		return b.String()
	}
	h := newHub()
	listeners := make([]*listener, 4)
	clients := make([]*Client, 4)
	for i := range clients {
		listeners[i] = &listener{}
		clients[i] = h.Client(listeners[i])
	}
	subscribed := make([]map[string]bool, 4)
	for i := range subscribed {
		subscribed[i] = make(map[string]bool)
	}
	for range 5000 {
		i := random.IntN(4)
		pattern := word(`ab*?[]\`)
		if random.IntN(10) == 0 {
			pattern = strings.Repeat("a", 40) + pattern
		}
		switch {
		case random.IntN(2) == 0:
			require.Equal(t, !subscribed[i][pattern], clients[i].Subscribe(Pattern, pattern))
			subscribed[i][pattern] = true
		case random.IntN(3) == 0:
			require.Equal(t, subscribed[i][pattern], clients[i].Unsubscribe(Pattern, pattern))
			delete(subscribed[i], pattern)
		case random.IntN(100) == 0:
			clients[i].Leave()
			clear(subscribed[i])
		}
		channel := word("ab")
		publish(h, channel, "x")
		total := 0
		for i := range clients {
			want := 0
			for p := range subscribed[i] {
				if protocol.Match(p, channel, false) {
					want++
				}
			}
			total += want
			require.Len(t, listeners[i].take(h), want)
		}
		require.Equal(t, total, h.Receivers(channel, false))
	}
	for i := range clients {
		clients[i].Leave()
	}
	require.Empty(t, h.patterns.lists)
	require.Equal(t, [maxBeginning + 1]int{}, h.patterns.lengths)
	require.Empty(t, h.topics[Pattern])
}

// TestCostlyPatterns shows that a client whose patterns take too long to match a message is disconnected, and that
// others receive the message.
func TestCostlyPatterns(t *testing.T) {
	h, good, bad := newHub(), &listener{}, &listener{}
	h.Client(good).Subscribe(Pattern, "a*")
	c := h.Client(bad)
	c.Subscribe(Pattern, strings.Repeat("a", 50)+strings.Repeat("*a", 20)+strings.Repeat("a", 30_000)+"b")
	publish(h, strings.Repeat("a", 60_000), "x")
	require.Len(t, good.take(h), 1)
	require.Equal(t, whyPattern, bad.isCut(h))
	require.Empty(t, good.isCut(h))
}

// TestManyPatternsAreFewLooks shows that patterns with other beginnings than the channel's are not matched.
func TestManyPatternsAreFewLooks(t *testing.T) {
	h, l := newHub(), &listener{}
	c := h.Client(l)
	for i := range 10_000 {
		c.Subscribe(Pattern, fmt.Sprintf("user:%d:*", i))
	}
	looks := 0
	h.patterns.each("user:77:name", func(*topic) bool { looks++; return true })
	require.Equal(t, 1, looks)
	publish(h, "user:77:name", "x")
	require.Len(t, l.take(h), 1)
}

// TestCrowded shows that when the queue fills, the client whose patterns cost most is disconnected.
func TestCrowded(t *testing.T) {
	h, good, bad := newHub(), &listener{}, &listener{}
	h.Client(good).Subscribe(Pattern, "*")
	c := h.Client(bad)
	for i := range 5000 {
		c.Subscribe(Pattern, fmt.Sprintf("*%d", i))
	}
	publish(h, "c", "x")
	require.Empty(t, bad.isCut(h))
	release := h.hold(t)
	big := strings.Repeat("x", crowdedBytes/100)
	for range 100 + 2*takeItems {
		publish(h, "c", big)
	}
	release()
	require.Equal(t, whyPattern, bad.isCut(h))
	require.Empty(t, good.isCut(h))
	require.Len(t, good.take(h), 1+100+2*takeItems)
}

// TestInterest shows that the state machine is asked to report messages only while there are subscriptions.
func TestInterest(t *testing.T) {
	h := newHub()
	var calls []bool
	h.OnInterest(func(on bool) { calls = append(calls, on) })
	a, b := h.Client(&listener{}), h.Client(&listener{})
	a.Subscribe(Channel, "a")
	b.Subscribe(Pattern, "b")
	a.Leave()
	b.Leave()
	a.Subscribe(Shard, "a")
	require.Equal(t, []bool{true, false, true}, calls)
}

// TestNothingStaysBehind shows that the memory of many subscriptions is freed after they have ended.
func TestNothingStaysBehind(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	h := newHub()
	before := heap()
	clients := make([]*Client, 1000)
	for i := range clients {
		clients[i] = h.Client(&listener{})
		for n := range 30 {
			for kind := range kinds {
				clients[i].Subscribe(kind, fmt.Sprintf("%d:%d:*", i, n))
			}
		}
	}
	full := heap()
	for _, c := range clients {
		c.Leave()
	}
	clear(clients)
	require.Less(t, heap()-before, (full-before)/20)
	runtime.KeepAlive(h)
}

// TestNames shows that Names and Active list subscribed names in order, filtered by a pattern.
func TestNames(t *testing.T) {
	h := newHub()
	c := h.Client(&listener{})
	for _, name := range []string{"b", "a", "c"} {
		c.Subscribe(Channel, name)
	}
	require.Equal(t, []string{"a", "b", "c"}, c.Names(Channel))
	names, ok := h.Active(Channel, "[ab]")
	require.True(t, ok)
	require.Equal(t, []string{"a", "b"}, names)
	require.Equal(t, 1, h.Subscribers(Channel, "a"))
	require.Zero(t, h.Subscribers(Channel, "x"))
	_, ok = h.Active(Channel, "*")
	require.True(t, ok)
}

// TestOneOrder shows that each subscription receives consecutive messages in order, while subscribers come and go.
func TestOneOrder(t *testing.T) {
	h := newHub()
	var all sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				l := &listener{}
				c := h.Client(l)
				kind, name := Channel, "c"
				if i%2 == 1 {
					kind, name = Pattern, "c*"
				}
				c.Subscribe(kind, name)
				h.Settle()
				c.Unsubscribe(kind, name)
				heard := len(l.heard) // nothing is posted after Unsubscribe
				for j := 1; j < heard; j++ {
					var was, is int
					fmt.Sscan(l.heard[j-1][strings.LastIndex(l.heard[j-1], " ")+1:], &was)
					fmt.Sscan(l.heard[j][strings.LastIndex(l.heard[j], " ")+1:], &is)
					if is != was+1 {
						t.Errorf("%q after %q", l.heard[j], l.heard[j-1])
						return
					}
				}
			}
		})
	}
	for i := range 5000 {
		publish(h, "c", fmt.Sprint(i))
	}
	close(done)
	all.Wait()
	require.Zero(t, h.subscriptions.Load())
}
