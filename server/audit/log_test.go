package audit

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// frozenLog is a log handler that blocks within Handle until release is closed.
type frozenLog struct {
	slog.Handler
	entered, release chan struct{}
}

func (f *frozenLog) Enabled(context.Context, slog.Level) bool { return true }

func (f *frozenLog) Handle(context.Context, slog.Record) error {
	f.entered <- struct{}{}
	<-f.release
	return nil
}

// TestFrozenLog shows that while the node's own log blocks, entries are applied, and their audit lines wait.
func TestFrozenLog(t *testing.T) {
	frozen := &frozenLog{entered: make(chan struct{}), release: make(chan struct{})}
	g := &gate{open: make(chan struct{})}
	l := opened(t, Stdout, func(c *Config) { c.Stdout, c.Logger = g, slog.New(frozen) })
	l.mu.Lock()
	l.room = 1
	l.mu.Unlock()
	for i := range uint64(3) {
		l.Changes(1+i, []event.LockChange{changed("k", "a", event.LockGranted)})
	}
	require.Positive(t, l.Dropped())
	close(g.open)
	<-frozen.entered
	require.True(t, l.mu.TryLock(), "the lock is held while the node's log blocks")
	l.room = waitingBytes
	l.mu.Unlock()
	l.Changes(4, []event.LockChange{changed("after", "a", event.LockGranted)})
	l.Note(Line{Event: LoginRefused})
	close(frozen.release)
	require.NoError(t, l.Close())
	require.Contains(t, g.String(), `"key":"after"`)
	require.Contains(t, g.String(), LoginRefused)
}

// TestPatternOfLongKey shows that the changes of a key are written if matching it takes too long.
func TestPatternOfLongKey(t *testing.T) {
	l := &Log{config: Config{Patterns: []string{"jobs:*z*y*x*"}}}
	require.True(t, l.isWanted("jobs:zyx"))
	require.False(t, l.isWanted("jobs:zy"))
	require.True(t, l.isWanted("jobs:"+strings.Repeat("zy", maxMatchSteps)))
}
