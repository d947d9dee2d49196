package server

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/replica"
)

// TestSlowLocksAreLogged: as long as there are few, and how many were left out.
func TestSlowLocksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		s := &Server{
			logger:    slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: drop})),
			slowLocks: newSlowLocks(),
		}
		slow := func(news event.LockNews) {
			news.Owner, news.Conn = "me", 3
			s.onEvent(replica.LockSlow{DB: 1, Key: "k", LockNews: news})
		}
		slow(event.LockNews{Fence: 7, Session: 5, HeldMillis: 99_000, SinceRenewedMillis: 9000, LeaseMillis: 10_000})
		for range 6 {
			slow(event.LockNews{Fence: 7, WaitedMillis: 1500})
		}
		require.Equal(t, slowLines, strings.Count(lines.String(), "\n"))
		time.Sleep(time.Second)
		slow(event.LockNews{Reason: "timeout", WaitedMillis: 2500})
		slow(event.LockNews{HeldMillis: 10_000, SinceRenewedMillis: 10_000, LeaseMillis: 10_000})
		shown := strings.Split(lines.String(), "\n")
		require.Equal(t,
			`level=WARN msg="a lock was held for more than four fifths of its lease" key=k db=1 owner=me id=3 fence=7 session=5 held=1m39s unrenewed=9s lease=10s`, shown[0])
		require.Equal(t,
			`level=WARN msg="waited long for a lock" key=k db=1 owner=me id=3 fence=7 waited=1.5s outcome=granted`, shown[1])
		require.Equal(t,
			`level=WARN msg="waited long for a lock" key=k db=1 owner=me id=3 not_logged=2 waited=2.5s outcome=timeout`,
			shown[5])
		require.Equal(t,
			`level=WARN msg="a lock was held for more than four fifths of its lease" key=k db=1 owner=me id=3 held=10s unrenewed=10s lease=10s lost=expired`, shown[6])
	})
}
