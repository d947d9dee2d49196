package tracking

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// heard is a target that writes down what it is told.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Invalidate(m *push.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Split(string(m.AppendFrom(nil, protocol.RESP3, 0, 1<<20)), "\r\n")
	var keys []string
	for i := 5; i < len(text)-1; i += 2 {
		keys = append(keys, text[i])
	}
	if text[3] == "_" {
		keys = []string{"all"}
	}
	h.lines = append(h.lines, strings.Join(keys, " "))
}

// told is what was heard since the last call, when all is delivered.
func (h *heard) told() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func changed(keys ...string) (events []event.Event) {
	for _, key := range keys {
		events = append(events, event.Event{Kind: event.Changed, Key: key})
	}
	return events
}

// client is a client that tracks.
func client(t *Table, o Options) (*Client, *heard) {
	h := &heard{}
	c := t.Client(h)
	c.Start(o)
	return c, h
}

// look is a read of keys, answered.
func (c *Client) look(keys ...string) {
	c.Begin()
	c.Read(keys...)
	c.Settle()
}

func TestKeysAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		var interest []bool
		table.OnInterest(func(on bool) { interest = append(interest, on) })
		a, heardA := client(table, Options{})
		b, heardB := client(table, Options{})
		a.look("x", "y", "x")
		b.look("x")
		require.Equal(t, Stats{Clients: 2, Keys: 2, Items: 3}, table.Stats())
		table.Events(changed("z", "x", "x"))
		require.Equal(t, []string{"x"}, heardA.told())
		require.Equal(t, []string{"x"}, heardB.told())
		table.Events(changed("x"))
		require.Empty(t, heardA.told(), "it has not read x again")
		b.Stop()
		a.look("x")
		table.Events([]event.Event{{Kind: event.Flushed}, {Kind: event.Changed, Key: "x"}})
		require.Equal(t, []string{"all"}, heardA.told())
		table.Events([]event.Event{{Kind: event.Swapped}})
		require.Equal(t, []string{"all"}, heardA.told())
		table.InvalidateAll()
		require.Equal(t, []string{"all"}, heardA.told())
		a.Stop()
		a.Stop()
		require.Empty(t, heardB.told())
		require.Equal(t, []bool{true, false}, interest)
		require.Zero(t, table.Stats())
	})
}

// TestHeldBackBehindReplies: a message that meets commands under way leaves behind their replies.
func TestHeldBackBehindReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		a, h := client(table, Options{})
		a.Begin()
		a.Read("x", "y")
		table.Events(changed("x"))
		table.Events(changed("y"))
		require.Empty(t, h.told())
		a.Settle()
		require.Equal(t, []string{"x", "y"}, h.told())

		a.Begin()
		a.Read("x")
		table.Events(changed("x"))
		table.InvalidateAll()
		require.Empty(t, h.told())
		a.Settle()
		require.Equal(t, []string{"all"}, h.told())

		a.Begin()
		for i := range maxHeld + 1 {
			key := fmt.Sprint(i)
			a.Read(key)
			table.Events(changed(key))
		}
		synctest.Wait()
		a.Settle()
		require.Equal(t, []string{"all"}, h.told())
	})
}

// TestOwnChanges: with NOLOOP a client does not hear of its own changes, and hears of the next.
func TestOwnChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		a, h := client(table, Options{NoLoop: true})
		own := []event.Event{{Kind: event.Changed, Key: "x", Seq: 7}, {Kind: event.Ran, Seq: 7}}
		a.look("x")
		a.Numbered(7)
		table.Events(own)
		require.Empty(t, h.told())
		table.Events(changed("x"))
		require.Equal(t, []string{"x"}, h.told())
		a.look("x")
		table.Events(own)
		require.Equal(t, []string{"x"}, h.told(), "the batch was another client's")

		b, heardB := client(table, Options{Broadcast: true, Prefixes: []string{""}, NoLoop: true})
		b.Numbered(8)
		table.Events([]event.Event{{Kind: event.Changed, Key: "x", Seq: 8}, {Kind: event.Changed, Key: "y"}})
		require.Equal(t, []string{"y"}, heardB.told())
	})
}

// TestNewsAreShared: an entry is not copied for each client with NOLOOP, which would hold up the log.
func TestNewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		o := Options{Broadcast: true, Prefixes: []string{""}, NoLoop: true}
		a, heardA := client(table, o)
		b, heardB := client(table, o)
		_, heardC := client(table, o)
		_, heardD := client(table, o)
		a.Numbered(1)
		b.Numbered(2)
		events := []event.Event{{Kind: event.Changed, Key: "x", Seq: 1}, {Kind: event.Changed, Key: "y", Seq: 2}}
		table.mu.Lock()
		table.broadcast([]change{{"x", a}, {"y", b}})
		distinct := make(map[*news]bool)
		for _, m := range table.queue.messages {
			distinct[m.news] = true
			require.Nil(t, m.news.m, "encoding is the work of another goroutine")
		}
		require.Len(t, distinct, 3)
		table.queue.messages = nil
		table.mu.Unlock()
		table.Events(events)
		require.Equal(t, []string{"y"}, heardA.told())
		require.Equal(t, []string{"x"}, heardB.told())
		require.Equal(t, []string{"x y"}, heardC.told())
		require.Equal(t, []string{"x y"}, heardD.told())
	})
}

// TestEndedClientIsLetGo: the table may know of a client long after its connection, and keeps the connection
// no longer in memory, nor what was held back for it.
func TestEndedClientIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		client(table, Options{})
		a, h := client(table, Options{})
		a.look("x", "y")
		a.Begin()
		table.Events(changed("x"))
		require.Empty(t, h.told())
		a.End()
		require.Equal(t, 1, table.Stats().Keys)
		require.Nil(t, a.to)
		require.Nil(t, a.held)
		table.Events(changed("y"))
		a.post(everything)
		require.Empty(t, h.told())
		a.Settle()
	})
}

func TestBroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		a, heardA := client(table, Options{Broadcast: true, Prefixes: []string{"user:", "lock:"}})
		_, heardB := client(table, Options{Broadcast: true, Prefixes: []string{""}})
		require.Equal(t, []string{"lock:", "user:"}, a.Prefixes())
		require.Equal(t, 3, table.Stats().Prefixes)
		a.look("x")
		require.Zero(t, table.Stats().Keys)
		table.Events(changed("lock:2", "user:1", "lock:1", "lock:2", "other"))
		require.Equal(t, []string{"lock:1 lock:2", "user:1"}, heardA.told())
		require.Equal(t, []string{"lock:1 lock:2 other user:1"}, heardB.told())
		a.Stop()
		table.Events(changed("user:1"))
		require.Empty(t, heardA.told())
		require.Equal(t, 1, table.Stats().Prefixes)
		require.Len(t, table.lengths, 1)

		c := table.Client(&heard{})
		var many []string
		for i := range maxPrefixLengths {
			many = append(many, strings.Repeat("p", i+1))
		}
		require.False(t, c.Start(Options{Broadcast: true, Prefixes: many}))
		require.True(t, c.Start(Options{Broadcast: true, Prefixes: many[1:]}))
	})
}

// TestLooksOfScripts: what a script reads is noted as the batch is applied, if its client waits for that.
func TestLooksOfScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(DefaultLimits())
		a, h := client(table, Options{})
		a.Numbered(3)
		require.True(t, table.Wants(3))
		table.Events([]event.Event{
			{Kind: event.Read, Key: "x", Seq: 3},
			{Kind: event.Read, Key: "y", Seq: 3},
			{Kind: event.Changed, Key: "x"},
			{Kind: event.Ran, Seq: 3},
			{Kind: event.Read, Key: "z", Seq: 3},
			{Kind: event.Read, Key: "z", Seq: 4},
		})
		require.False(t, table.Wants(3))
		require.Equal(t, []string{"x"}, h.told())
		table.Events(changed("y", "z"))
		require.Equal(t, []string{"y"}, h.told())
		for n := range uint64(maxBatches + 1) {
			a.Numbered(100 + n)
		}
		require.Equal(t, "all", h.told()[0], "what the forgotten batches look at is not noted")
		require.False(t, table.Wants(100))
		require.True(t, table.Wants(100+maxBatches))
	})
}

// TestTableIsBounded: what does not fit is told as changed.
func TestTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(Limits{Keys: 10, Bytes: 1 << 20})
		a, h := client(table, Options{})
		told := map[string]bool{}
		for i := range 100 {
			a.look(fmt.Sprint(i))
			require.LessOrEqual(t, table.Stats().Keys, 10)
		}
		for _, key := range h.told() {
			told[key] = true
		}
		require.Len(t, told, 90)
		for i := range 100 {
			table.Events(changed(fmt.Sprint(i)))
		}
		require.Len(t, h.told(), 10)

		table = New(Limits{Bytes: 10 * (keyBytes + itemBytes + 1000)})
		a, _ = client(table, Options{})
		for i := range 100 {
			a.look(strings.Repeat(fmt.Sprint(i%10), 1000+i/10))
		}
		require.LessOrEqual(t, table.Stats().Keys, 10)
		require.LessOrEqual(t, table.bytes, table.limits.Bytes)
		table.InvalidateAll()
		require.Zero(t, table.bytes)
	})
}

// TestQueueIsBounded: clients that miss messages drop everything.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(Limits{Bytes: 4000})
		_, h := client(table, Options{Broadcast: true, Prefixes: []string{""}})
		table.mu.Lock()
		for i := range 100 {
			table.broadcast([]change{{key: fmt.Sprint(i)}})
		}
		table.start()
		table.mu.Unlock()
		told := h.told()
		require.Contains(t, told, "all")
		require.Contains(t, told, "99")
		require.Less(t, len(told), 50)
	})
}
