package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/audit"
)

// at is the instant of the first entry of these tests, in milliseconds.
const at = int64(1_700_000_000_000)

// openLog opens the audit log of a node. Connection 7 of the node is the connection of the client.
func openLog(t *testing.T, path, node string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Config{Path: path, Bytes: 8 << 20, Node: node, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	l.Begin("c")
	l.SetClient(7, audit.Client{Addr: "10.0.0.7:1", User: "u"})
	return l
}

// hold has a node write the grant, after a wait, and the release of a lock, as entries of an index and the next.
func hold(l *audit.Log, index uint64, key string, isOwn bool) {
	for i, what := range []string{event.LockGranted, event.LockReleased} {
		ch := event.LockChange{
			What: what, Key: key, Owner: "o", Node: "n1@x", Conn: 7, Own: isOwn, Fence: int64(index),
			AtMillis: at + 10*int64(index+uint64(i)),
		}
		if i == 0 {
			ch.WaitedMillis = 5
		} else {
			ch.HeldMillis = 10
		}
		l.Changes(index+uint64(i), []event.LockChange{ch})
	}
}

// TestMerge: the files of three nodes, two of them without some lines, give each line once, in order, with the address
// that one node knows.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, node := range []string{"n2", "n3", "n1"} {
		path := filepath.Join(dir, node)
		paths = append(paths, path)
		l := openLog(t, path, node)
		for index := uint64(1); index < 100; index += 2 {
			if node == "n1" || node == "n2" && index > 20 || node == "n3" && (index < 41 || index > 61) {
				hold(l, index, "k", node == "n1")
			}
		}
		require.NoError(t, l.Close())
	}
	f, err := os.OpenFile(paths[0], os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("{\n\n" + `{"event":"granted","key":"` + strings.Repeat("k", 1<<17) + "\"}\n" + `{"event":"gra`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	var indexes []uint64
	r, err := openReader(t.Context(), paths, nil, func(l *audit.Line) {
		indexes = append(indexes, l.Index)
		require.Equal(t, "10.0.0.7:1", l.Addr)
	})
	require.NoError(t, err)
	defer r.close()
	require.NoError(t, r.run(t.Context(), t.Context(), false))
	require.Len(t, indexes, 100)
	for i, index := range indexes {
		require.EqualValues(t, 1+i, index)
	}
	require.Equal(t, 3, r.unreadable)
	_, err = openReader(t.Context(), []string{filepath.Join(dir, "none")}, nil, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestFollow: a file that is rotated, removed and truncated while it is followed has each line once, and another node's
// file that gets the same lines later adds none.
func TestFollow(t *testing.T) { synctest.Test(t, testFollow) }

func testFollow(t *testing.T) {
	dir := t.TempDir()
	path, late := filepath.Join(dir, "n1"), filepath.Join(dir, "n2")
	l := openLog(t, path, "n1")
	require.NoError(t, os.WriteFile(late, nil, 0o600))
	lines := make(chan audit.Line, 100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := openReader(ctx, []string{path, late}, nil, func(l *audit.Line) { lines <- *l })
	require.NoError(t, err)
	defer r.close()
	ended := make(chan error)
	go func() { ended <- r.run(ctx, t.Context(), true) }()

	key, index := strings.Repeat("k", 1000), uint64(1)
	pass := func(pairs uint64) {
		t.Helper()
		first := index
		for ; index < first+2*pairs; index += 2 {
			hold(l, index, key, true)
		}
		for ; first < index; first++ {
			require.Equal(t, first, (<-lines).Index)
		}
	}
	pass(2000) // five rotations go by before the reader looks again
	pass(1)
	pass(100) // more than the file has when it was truncated
	require.NoError(t, os.Truncate(path, 0))
	pass(2)
	require.NoError(t, os.Rename(path, path+".old"))
	for {
		pass(1)
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	pass(1)
	behind := openLog(t, late, "n2")
	for i := uint64(1); i < index; i += 2 {
		hold(behind, i, key, false)
	}
	require.NoError(t, behind.Close())
	pass(1)
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, lines)
	require.Zero(t, r.unreadable)
}

// TestSettle: a line of a wait that ended long before waits for the file that has the client's address, but not for a
// file that goes without it.
func TestSettle(t *testing.T) { synctest.Test(t, testSettle) }

func testSettle(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, node := range []string{"n1", "n2"} {
		paths = append(paths, filepath.Join(dir, node))
		require.NoError(t, os.WriteFile(paths[len(paths)-1], nil, 0o600))
	}
	write := func(path string, index int, more string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		const line = `{"time":"1999-01-01T00:00:00Z","cluster":"c","index":%d,"event":"wait-ended"%s}` + "\n"
		_, err = fmt.Fprintf(f, line, index, more)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	lines := make(chan audit.Line, 9)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := openReader(ctx, paths, nil, func(l *audit.Line) { lines <- *l })
	require.NoError(t, err)
	defer r.close()
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, t.Context(), true) }()
	time.Sleep(settleFor)
	write(paths[0], 1, "")
	time.Sleep(settleFor / 2)
	require.Empty(t, lines)
	write(paths[1], 1, `,"addr":"10.0.0.7:1"`)
	require.Equal(t, "10.0.0.7:1", (<-lines).Addr)
	write(paths[0], 2, "")
	write(paths[0], 3, "")
	written := time.Now()
	require.EqualValues(t, 2, (<-lines).Index)
	require.EqualValues(t, 3, (<-lines).Index)
	require.LessOrEqual(t, time.Since(written), settleFor+pollEvery)
	stop()
	require.NoError(t, <-ended)
}

// TestStdin: standard input is read to its end, or until a signal comes.
func TestStdin(t *testing.T) {
	const line = `{"time":"2026-01-01T00:00:00Z","cluster":"c","index":1,"event":"granted","key":"k"}` + "\n"
	lines := make(chan audit.Line, 1)
	add := func(l *audit.Line) { lines <- *l }
	r, err := openReader(t.Context(), nil, strings.NewReader(line+line), add)
	require.NoError(t, err)
	require.NoError(t, r.run(t.Context(), t.Context(), false))
	require.Equal(t, "k", (<-lines).Key)

	from, to := io.Pipe()
	defer to.Close()
	ctx, stop := context.WithCancel(t.Context())
	r, err = openReader(ctx, nil, from, add)
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- r.run(ctx, t.Context(), false) }()
	_, err = to.Write([]byte(line))
	require.NoError(t, err)
	<-lines
	stop()
	require.NoError(t, <-ended)
}

// TestRecent: a bounded number of lines is known, the last ones at least.
func TestRecent(t *testing.T) {
	r := &reader{recent: [2]map[lineID]struct{}{{}}}
	for index := range uint64(3 * maxRecentLines) {
		require.True(t, r.isNew(idOf(&audit.Line{Cluster: "c", Index: index})))
	}
	require.False(t, r.isNew(idOf(&audit.Line{Cluster: "c", Index: 2 * maxRecentLines})))
	require.True(t, r.isNew(idOf(&audit.Line{Cluster: "d", Index: 2 * maxRecentLines})))
	require.LessOrEqual(t, len(r.recent[0])+len(r.recent[1]), 2*maxRecentLines)
}
