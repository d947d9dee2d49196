package frontend

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestEveryLocalRowIsBoundOnce shows that each command that the node runs itself has exactly one handler, and that the
// kind of each handler fits the route of its command. A container has no handler, since only its subcommands run.
func TestEveryLocalRowIsBoundOnce(t *testing.T) {
	families := handlerFamilies()
	bound := make(map[string]int)
	for _, family := range families {
		for name, l := range family {
			bound[name]++
			row := rowNamed(name)
			require.NotNil(t, row, "%s is bound and has no row", name)
			if l.lock != nil || l.acquires {
				require.True(t, l.run == nil && l.reply == nil && row.Route == protocol.Write, "%s is executed by the cluster",
					name)
				continue
			}
			if l.fill != nil {
				require.True(t, l.run == nil && l.reply == nil && row.Route == protocol.Read, "%s is read from the cluster", name)
				continue
			}
			require.NotEqual(t, l.run == nil, l.reply == nil, "%s has to have either run or reply", name)
			// WATCH reads the state, but this package makes the reply.
			require.True(t, row.Route == protocol.Local || name == "watch", "%s is bound and its row is not Local", name)
		}
	}
	for command, row := range newRows() {
		container := len(command.Subcommands) > 0 && command.Arity == -2
		if command.Route == protocol.Local && !container {
			require.Equal(t, 1, bound[command.Name], "%s is to be bound once", command.Name)
		}
		if container {
			require.Zero(t, bound[command.Name], "%s is never run by itself", command.Name)
		}
		require.Equal(t, command.Route == protocol.Local || command.Name == "watch", row.handler.run != nil ||
			row.handler.reply != nil || container, command.Name)
		require.False(t, row.write && command.Has(protocol.FlagReadOnly), command.Name)
		require.Equal(t, row.write, command.Route == protocol.Write || command.Name == "eval" || command.Name == "evalsha",
			command.Name)
	}
}

// rowNamed returns the command of that name in the tables of all ports, or nil.
func rowNamed(name string) *protocol.Command {
	for _, table := range tables() {
		for c := range table.All() {
			if c.Name == name {
				return c
			}
		}
	}
	return nil
}

// TestCommandsOfLaterVersions shows that a cluster of an earlier entry version refuses a command by its name before
// anything is proposed, also in transactions and scripts.
func TestCommandsOfLaterVersions(t *testing.T) {
	write, read := rowNamed("setrange"), rowNamed("strlen")
	write.LogVersion, read.LogVersion = protocol.EntryVersion+1, protocol.EntryVersion+1
	t.Cleanup(func() { write.LogVersion, read.LogVersion = 0, 0 })
	refused := fmt.Sprintf("-ERR unknown command '%%s': it comes with version %d of the cluster, which has version %d "+
		"(see RAFT.STATUS)\r\n", protocol.EntryVersion+1, protocol.EntryVersion)
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		c := start(t, Config{}, cl).dial()
		for range 2 {
			for _, words := range [][]string{{"setrange", "k", "0", "v"}, {"STRLEN", "k"}, {"strlen"}} {
				require.Equal(t, fmt.Sprintf(refused, strings.ToLower(words[0])), answer(c, words...))
			}
			require.Empty(t, cl.batches)
			require.Equal(t, "+OK\r\n", answer(c, "multi"))
			require.Equal(t, fmt.Sprintf(refused, "strlen"), answer(c, "strlen", "k"))
			require.Contains(t, answer(c, "exec"), "-EXECABORT")
			require.Equal(t, "-ERR Unknown Redis command called from script script",
				strings.Split(answer(c, "eval", "return redis.call('strlen', 'k')", "0"), ":")[0])
			require.Contains(t, answer(c, "eval_ro", "return redis.call('strlen', 'k')", "0"), "-ERR Unknown Redis command")
			require.Equal(t, "$-1\r\n", answer(c, "get", "k"))
			cl.batches = nil
		}
	})
}

// startLogged starts a server that logs forced breaks, and returns its log.
func startLogged(t *testing.T) (*testServer, *bytes.Buffer) {
	t.Helper()
	s, lines := start(t, Config{}, newCluster()), &bytes.Buffer{}
	s.cluster.onForced = s.LocksForced
	s.cfg.Logger = slog.New(slog.NewTextHandler(lines, nil))
	return s, lines
}

// of returns the attributes that a log line of [TestForcedBreaksAreLogged] has for a hold.
func of(key string, fence int) string {
	since := "2000-01-01T00:00:0" + strconv.Itoa(max(0, fence-2)) + "Z"
	return fmt.Sprintf(`key=%s owner=me fence=%d since=%s holder=n1/1 note="run 7" `, key, fence, since)
}

// TestForcedBreaksAreLogged shows that a command that breaks locks by force is logged with its client, also from a
// transaction or a script. There is one line for each hold that ends at once, and one line for FLUSHDB and FLUSHALL. A
// command that breaks no lock is not logged.
func TestForcedBreaksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := startLogged(t)
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
	})
}

// TestForcedBreakOfManyHolds shows that if a command ends many holds, the first ten are logged, each with the count of
// all.
func TestForcedBreakOfManyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := startLogged(t)
		c := s.dial()
		for i := range 50 {
			answer(c, "LOCK.ACQUIRE", "k", fmt.Sprint("owner", i), "PX", "60000", "SHARED")
		}
		require.Equal(t, ":50\r\n", answer(c, "LOCK.BREAK", "k"))
		synctest.Wait()
		require.Equal(t, 10, strings.Count(lines.String(), "holds=50"))
		require.Contains(t, lines.String(), "owner=owner9 ")
	})
}

// TestForcedBreaksAreFewLines shows that a client that breaks many locks cannot fill the log. Lines are limited in rate
// and length, and a later line has the number of breaks that were not logged.
func TestForcedBreaksAreFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := startLogged(t)
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
	})
}

// TestOptionsOfLaterVersions shows that a cluster of an earlier entry version refuses an option by its name, as it
// refuses such commands. The same word is accepted as a value.
func TestOptionsOfLaterVersions(t *testing.T) {
	later := func(command, name string) {
		args := rowNamed(command).Args
		at := slices.IndexFunc(args, func(a protocol.Arg) bool { return a.Name == name })
		args[at].LogVersion = protocol.EntryVersion + 1
		t.Cleanup(func() { args[at].LogVersion = 0 })
	}
	later("lock.acquire", "note")
	later("set", "condition")
	later("session.attach", "heartbeat")
	later("lock.list", "part")
	refused := func(option, of string) string {
		return fmt.Sprintf("-ERR syntax error: the option '%s' of '%s' comes with version %d of the cluster, which has "+
			"version %d (see RAFT.STATUS)\r\n", option, of, protocol.EntryVersion+1, protocol.EntryVersion)
	}
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		c := start(t, Config{}, cl).dial()
		for option, words := range map[string][]string{
			"NOTE":      {"lock.acquire", "k", "me", "PX", "9", "note", "x", "WAIT", "0"},
			"NX":        {"set", "k", "v", "PX", "9", "nx"},
			"HEARTBEAT": {"session.attach", "1", "HEARTBEAT"},
			"WAITING":   {"lock.list", "COUNT", "3", "WAITING"},
		} {
			want := refused(option, words[0])
			require.Equal(t, want, answer(c, words...))
			require.Equal(t, "+OK\r\n", answer(c, "multi"))
			require.Equal(t, want, answer(c, words...))
			require.Contains(t, answer(c, "exec"), "-EXECABORT")
		}
		require.Empty(t, cl.batches)
		require.Equal(t, ":1\r\n", answer(c, "lock.acquire", "note", "note", "px", "9"))
		require.Equal(t, "+OK\r\n", answer(c, "set", "nx", "NX", "px", "9"))
		require.Equal(t, "-ERR syntax error script", strings.Split(
			answer(c, "eval", "return redis.call('set', 'k', 'v', 'nx')", "0"), ":")[0])
		require.Equal(t, "$-1\r\n", answer(c, "get", "k"))
	})
}
