package frontend

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForcedBreaksAreLogged: who took locks away by other words than LOCK.BREAK, from where: one line a command, also
// from a transaction and a script, and none where no lock was taken away.
func TestForcedBreaksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		s.cluster.onForced = s.LocksForced
		var lines bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		holder, ops := s.dial(), s.dial()
		run := func(words ...string) {
			t.Helper()
			require.NotContains(t, answer(ops, words...), "-ERR", words)
		}
		acquire := func(keys ...string) {
			t.Helper()
			for _, key := range keys {
				require.NotContains(t, answer(holder, "LOCK.ACQUIRE", key, "me", "PX", "60000"), "-")
			}
		}
		run("CLIENT", "SETNAME", "ops")
		for _, tc := range []struct {
			locks []string
			words [][]string
			want  string
		}{
			{[]string{"a", "b"}, [][]string{{"DEL", "x", "a", "b"}}, "command=del db=0 key=a locks=2"},
			{[]string{"a"}, [][]string{{"Unlink", "a"}}, "command=unlink db=0 key=a locks=1"},
			{[]string{"a"}, [][]string{{"MULTI"}, {"SET", "x", "1"}, {"DEL", "a"}, {"EXEC"}}, "command=del db=0 key=a locks=1"},
			{[]string{"a"}, [][]string{{"EVAL", "return redis.call('DEL', KEYS[1])", "1", "a"}}, "command=del db=0 key=a locks=1"},
			{[]string{"a"}, [][]string{{"FLUSHDB"}}, "command=flushdb db=0"},
			{[]string{"a"}, [][]string{{"SELECT", "3"}, {"FLUSHALL"}, {"SELECT", "0"}}, "command=flushall db=3"},
			{nil, [][]string{{"DEL", "a"}, {"SET", "a", "1"}, {"DEL", "a"}, {"FLUSHALL"}}, ""},
		} {
			acquire(tc.locks...)
			for _, words := range tc.words {
				run(words...)
			}
			time.Sleep(time.Second)
			got := lines.String()
			lines.Reset()
			if tc.want == "" {
				require.Empty(t, got)
				continue
			}
			require.Equal(t, 1, strings.Count(got, "\n"), "%v: %s", tc.words, got)
			require.Contains(t, got, `msg="lock broken by force" `+tc.want+" client=pipe id=2 name=ops")
		}
		s.stop()
	})
}

// TestForcedBreaksAreFewLines: a client that breaks lock after lock does not fill the log.
func TestForcedBreaksAreFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		s.cluster.onForced = s.LocksForced
		var lines bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		c := s.dial()
		breakOne := func() {
			require.NotContains(t, answer(c, "LOCK.ACQUIRE", strings.Repeat("k", 1000), "me", "PX", "60000"), "-")
			require.Equal(t, ":1\r\n", answer(c, "DEL", strings.Repeat("k", 1000)))
		}
		began := time.Now()
		for range 100 {
			breakOne()
		}
		synctest.Wait()
		logged := strings.Count(lines.String(), "\n")
		require.LessOrEqual(t, logged, 20+1+int(time.Since(began)/(50*time.Millisecond)))
		require.Less(t, lines.Len(), logged*400)
		left := 100 - logged
		for _, m := range regexp.MustCompile(`not_logged=(\d+)`).FindAllStringSubmatch(lines.String(), -1) {
			n, _ := strconv.Atoi(m[1])
			left -= n
		}
		require.Positive(t, left)
		time.Sleep(time.Second)
		lines.Reset()
		breakOne()
		synctest.Wait()
		require.Contains(t, lines.String(), fmt.Sprintf("not_logged=%d ", left))
		s.stop()
	})
}
