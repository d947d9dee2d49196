package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/audit"
)

// promised are the grants and releases that clients were told of, by lock.
type promised struct {
	mu                sync.Mutex
	granted, released map[string]bool
}

func (p *promised) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.released)
}

// pairUntil takes and releases one lock after another on the nodes in turn, native and stock ones, until ctx ends.
func (p *promised) pairUntil(ctx context.Context, worker int, clients []*redis.Client) {
	tell := func(told map[string]bool, key string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		told[key] = true
	}
	for i := 0; ctx.Err() == nil; i++ {
		c, key := clients[(worker+i)%len(clients)], fmt.Sprintf("job:%d:%d", worker, i)
		take, give := []any{"LOCK.ACQUIRE", key, "me", "PX", 600_000}, []any{"LOCK.RELEASE", key, "me"}
		if i%3 == 0 {
			take, give = []any{"SET", key, "me", "NX", "PX", 600_000}, []any{"DELIFEQ", key, "me"}
		}
		if c.Do(ctx, take...).Err() != nil {
			continue // not acknowledged: nothing is promised
		}
		tell(p.granted, key)
		if c.Do(ctx, give...).Err() == nil {
			tell(p.released, key)
		}
	}
}

// TestAuditOfKilledLeaders: leaders are killed with kill -9 and start again while clients take and release locks. The
// nodes' files together have each grant and each release that was acknowledged once, and no file has a line twice. The
// program says from them who held a lock, and when.
func TestAuditOfKilledLeaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nodes := startNodes(t, build(t), 3, "--audit-log", filepath.Join(dir, "{node}.log"))
	clients := clientsOf(t, nodes)
	p := &promised{granted: map[string]bool{}, released: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers sync.WaitGroup
	for w := range 6 {
		workers.Go(func() { p.pairUntil(ctx, w, clients) })
	}
	for range 3 {
		before := p.count()
		require.Eventually(t, func() bool { return p.count() > before+200 }, 30*time.Second, time.Millisecond)
		leader := leaderOf(t, nodes)
		leader.Kill()
		leader.start(t)
		waitServing(t, leader)
	}
	cancel()
	workers.Wait()
	for _, n := range nodes {
		n.stop(t)
	}

	var from []io.Reader
	words := []string{"locks", "history", "--audit"}
	for _, n := range nodes {
		words = append(words, filepath.Join(dir, n.name+".log"))
		text := protocoltest.ReadFile(t, words[len(words)-1])
		from = append(from, strings.NewReader(text))
		alone, err := audit.Read([]io.Reader{strings.NewReader(text)}, func(l *audit.Line) bool { return l.Run == 0 })
		require.NoError(t, err)
		require.Len(t, alone.Lines, strings.Count(text, `"id":`)-alone.Unreadable, "%s has a line twice", n.name)
	}
	trail, err := audit.Read(from, func(l *audit.Line) bool { return l.Run == 0 })
	require.NoError(t, err)
	seen := map[string]int{}
	for _, l := range trail.Lines {
		seen[l.Event+" "+l.Key]++
	}
	for key := range p.granted {
		require.Equal(t, 1, seen["granted "+key], key)
	}
	for key := range p.released {
		require.Equal(t, 1, seen["released "+key], key)
	}

	// The words of the page for operators.
	var held audit.Hold
	for _, h := range trail.Holds() {
		if p.released[h.Key] {
			held = h
		}
	}
	at := time.UnixMilli(held.SinceUnixMillis).UTC().Format(atFormat)
	history := func(args ...string) string {
		var out bytes.Buffer
		require.Zero(t, run(t.Context(), append(slices.Clone(words), args...), &out, io.Discard))
		return out.String()
	}
	var doc auditAnswer
	require.NoError(t, json.Unmarshal([]byte(history("--lock", held.Key, "--at", at, "--json")), &doc))
	require.Len(t, doc.Holds, 1)
	require.Equal(t, held, doc.Holds[0])
	table := history("--lock", held.Key)
	require.Contains(t, table, "released")
	require.Contains(t, table, "default")
	require.Equal(t, 6, strings.Count(table, " started "), "%s", table)
	require.Contains(t, history("--lock", "nobody:*", "--at", at), "nobody held a lock that matches")
}

// TestAuditToClosedPipe: the reader of a node's standard output ends. The node serves on, and counts the lost lines.
func TestAuditToClosedPipe(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer writer.Close()
	n := plan(t, build(t), 1, "--audit-log", audit.Stdout)[0]
	cmd := exec.Command(n.exe, n.args...)
	cmd.Stdout = writer
	require.NoError(t, n.Start(cmd))
	waitServing(t, n)
	require.NoError(t, reader.Close())
	_, err = ask(t.Context(), n.addr, "LOCK.ACQUIRE", "k", "me", "PX", "600000")
	require.NoError(t, err)
	n.logs(t, "broken pipe")
	_, err = ask(t.Context(), n.addr, "LOCK.RELEASE", "k", "me")
	require.NoError(t, err)
	n.stop(t)
}
