package fsm

import (
	"bufio"
	"math/rand"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestDifferentialEvents compares the keyspace events of lists and sorted sets.
func TestDifferentialEvents(t *testing.T) {
	socket := protocoltest.StartRedis(t)
	dial := func() *redis {
		conn, err := net.Dial("unix", socket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return &redis{t: t, conn: conn, in: bufio.NewReader(conn)}
	}
	r, subscriber := dial(), dial()
	require.Equal(t, "+OK\r\n", r.do("config", "set", "notify-keyspace-events", "EA"))
	subscriber.do("psubscribe", "*")
	release := r.release()
	seen := make(map[string]bool)
	for seed := range int64(8) {
		g := scoredGenerator{&generator{rng: rand.New(rand.NewSource(seed))}}
		d := newDriver(t)
		d.m.Listen(event.InMessages)
		d.m.st.Notifies = event.AllClasses &^ (event.ClassKeyspace | event.ClassMiss | event.ClassNew)
		r.do("flushall")
		fillScored(r, d)
		theirEvents(r, subscriber)
		for range 1000 {
			words := g.next()
			if unclear(d, words) || otherNumbers(release, words) {
				continue
			}
			r.do(words...)
			ours := told(d.record(d.version, request(nil, 0, words...)).events)
			theirs := theirEvents(r, subscriber)
			require.Equal(t, theirs, ours, "seed %d: %s", seed, quote(words))
			for event := range strings.Lines(theirs) {
				name, _, _ := strings.Cut(event, ": ")
				seen[name] = true
			}
		}
	}
	require.Len(t, seen, 27)
}

// theirEvents are the events that Redis has told since the last call, as told shows them. Redis also
// tells of keys that are looked for in vain, and of new keys.
func theirEvents(r, subscriber *redis) string {
	r.do("publish", "end", "")
	var b strings.Builder
	for {
		parts := strings.Split(subscriber.reply(), "\r\n")
		channel, message := parts[6], parts[8]
		if channel == "end" {
			return b.String()
		}
		if !slices.Contains([]string{"__keyevent@0__:keymiss", "__keyevent@0__:new"}, channel) {
			b.WriteString(channel + ": " + message + "\n")
		}
	}
}
