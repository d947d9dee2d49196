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

// of is what a line says of a hold in [TestForcedBreaksAreLogged].
func of(key string, fence int) string {
	since := "2000-01-01T00:00:0" + strconv.Itoa(max(0, fence-2)) + "Z"
	return fmt.Sprintf(`key=%s owner=me fence=%d since=%s holder=n1/1 note="run 7" `, key, fence, since)
}

// TestForcedBreaksAreLogged: who took locks away, from where, and from whom: one line a hold that ends at once, also
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
				require.NotContains(t, answer(holder, "LOCK.ACQUIRE", key, "me", "PX", "60000", "NOTE", "run 7", "SHARED"), "-")
			}
		}
		run("CLIENT", "SETNAME", "ops")
		for _, tc := range []struct {
			locks []string
			words [][]string
			want  []string
		}{
			{[]string{"a", "b"}, [][]string{{"DEL", "x", "a", "b"}}, []string{
				of("a", 1) + "command=del db=0 locks=2",
				of("b", 2) + "command=del db=0 locks=2",
			}},
			{[]string{"a"}, [][]string{{"Unlink", "a"}}, []string{of("a", 3) + "command=unlink db=0"}},
			{
				[]string{"a"},
				[][]string{{"LOCK.BREAK", "a", "REASON", "it hangs"}},
				[]string{of("a", 4) + `command=lock.break db=0 holds=1 reason="it hangs"`},
			},
			{
				[]string{"a"},
				[][]string{{"LOCK.BREAK", "a", "FENCE", "1"}, {"LOCK.BREAK", "a", "DELAY", "0"}},
				[]string{of("a", 5) + "command=lock.break db=0 holds=1"},
			},
			{
				[]string{"a"},
				[][]string{{"MULTI"}, {"SET", "x", "1"}, {"DEL", "a"}, {"EXEC"}},
				[]string{of("a", 6) + "command=del db=0"},
			},
			{
				[]string{"a"},
				[][]string{{"EVAL", "return redis.call('DEL', KEYS[1])", "1", "a"}},
				[]string{of("a", 7) + "command=del db=0"},
			},
			{[]string{"a"}, [][]string{{"FLUSHDB"}}, []string{"command=flushdb db=0"}},
			{[]string{"a"}, [][]string{{"SELECT", "3"}, {"FLUSHALL"}, {"SELECT", "0"}}, []string{"command=flushall db=3"}},
			{nil, [][]string{{"DEL", "a"}, {"SET", "a", "1"}, {"DEL", "a"}, {"LOCK.BREAK", "b"}, {"FLUSHALL"}}, nil},
		} {
			acquire(tc.locks...)
			for _, words := range tc.words {
				run(words...)
			}
			time.Sleep(time.Second)
			got := lines.String()
			lines.Reset()
			require.Equal(t, len(tc.want), strings.Count(got, "\n"), "%v: %s", tc.words, got)
			for _, want := range tc.want {
				require.Contains(t, got, `msg="lock broken by force" `+want+" client=pipe id=2 name=ops")
			}
		}
		s.stop()
	})
}

// TestForcedBreakOfManyHolds: of many holds the first ten are named, and all are counted.
func TestForcedBreakOfManyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		s.cluster.onForced = s.LocksForced
		var lines bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		c := s.dial()
		for i := range 50 {
			answer(c, "LOCK.ACQUIRE", "k", fmt.Sprint("owner", i), "PX", "60000", "SHARED")
		}
		require.Equal(t, ":50\r\n", answer(c, "LOCK.BREAK", "k"))
		synctest.Wait()
		require.Equal(t, 10, strings.Count(lines.String(), "holds=50"))
		require.Contains(t, lines.String(), "owner=owner9 ")
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
