package frontend

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// testCompiler is a compiler that calls compile, and records what compiled.
type testCompiler struct {
	compile  func(source string) error
	compiled sync.Map
}

func (c *testCompiler) Compile(source string) error {
	err := c.compile(source)
	if err == nil {
		c.compiled.Store(source, true)
	}
	return err
}

func (c *testCompiler) Compiled(source string) bool {
	_, there := c.compiled.Load(source)
	return there
}

func TestScriptsRemembersWhatCompiled(t *testing.T) {
	compiled := 0
	s := newCompileCache(&testCompiler{compile: func(source string) error {
		compiled++
		if source == "bad" {
			return errors.New("ERR no")
		}
		return nil
	}})
	for range 3 {
		require.NoError(t, s.check([]byte("good")))
		require.EqualError(t, s.check([]byte("bad")), "ERR no")
	}
	require.Equal(t, 1+3, compiled)

	// A script in use stays in the cache, however many others are compiled.
	for i := range 10 * compileCacheSize {
		require.NoError(t, s.check(fmt.Append(nil, i)))
		if i%(compileCacheSize/2) == 0 {
			require.NoError(t, s.check([]byte("good")))
		}
		require.LessOrEqual(t, len(s.recent)+len(s.former), 2*compileCacheSize)
	}
	require.True(t, s.has(sha1.Sum([]byte("good"))))
	require.False(t, s.has(sha1.Sum([]byte("bad"))))
	require.False(t, s.has(sha1.Sum([]byte("0"))))
}

// TestBadScriptsStayOnThisNode shows that nothing is proposed for a script that does not compile or has a wrong number
// of keys.
func TestBadScriptsStayOnThisNode(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		for _, line := range [][]string{
			{"EVAL", "return (", "0"},
			{"EVAL_RO", "return (", "0"},
			{"script", "LOAD", "return ("},
			{"EVAL", "return 1", "x"},
			{"EVAL", "return 1", "2", "k"},
		} {
			require.Regexp(t, "^-ERR ", answer(c, line...))
			require.Empty(t, cl.take(), line)
		}
		require.Equal(t, ":7\r\n", answer(c, "EVAL", "return 7", "0"))
		require.Len(t, cl.take(), 1)
	})
}

// TestLargeSourcesTakeTurns shows that large sources are compiled one at a time. Small sources, and sources in the
// cache, do not wait.
func TestLargeSourcesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := func(n byte) []byte { return bytes.Repeat([]byte{n}, largeSource) }
		compiling, release := make(chan string, 3), make(chan struct{})
		s := newCompileCache(&testCompiler{compile: func(source string) error {
			compiling <- source
			if len(source) >= largeSource {
				<-release
			}
			return nil
		}})
		for n := range byte(2) {
			go func() { require.NoError(t, s.check(large(n))) }()
			synctest.Wait()
		}
		require.Equal(t, string(large(0)), <-compiling)
		require.Empty(t, compiling)
		require.NoError(t, s.check([]byte("small")))
		require.Equal(t, "small", <-compiling)

		release <- struct{}{}
		synctest.Wait()
		require.Equal(t, string(large(1)), <-compiling)
		require.NoError(t, s.check(large(0)), "it is known")
		release <- struct{}{}
	})
}

// TestPipelineGoesBeforeLargeSources shows that the commands before a large source in a pipeline run before it is
// compiled.
func TestPipelineGoesBeforeLargeSources(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		var before []int // batches executed until then
		s.compiled.compiler = &testCompiler{compile: func(string) error {
			before = append(before, len(cl.take()))
			return nil
		}}
		c := s.dial()
		small, large := "return 1", "return 1 --"+strings.Repeat("x", largeSource)
		c.send(slices.Concat(
			command("SET", "a", "1"), command("EVAL", small, "0"), command("SET", "b", "1"), command("EVAL", large, "0"),
			command("SET", "c", "1")))
		settle()
		got, _ := c.take()
		require.Equal(t, "+OK\r\n:1\r\n+OK\r\n:1\r\n+OK\r\n", got)
		require.Equal(t, []int{0, 1}, before)
	})
}

// TestFullDisk shows that while the disks are nearly full, commands that add data and large commands do not reach the
// log. Reads and deletions are served.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		c := start(t, Config{}, cl).dial()
		ask := func(words ...string) string {
			c.deliver(command(words...))
			got, closed := c.take()
			require.False(t, closed)
			return got
		}
		refusal := "-" + protocol.ErrDiskFull.Error() + "\r\n"
		large := strings.Repeat("x", fullDiskBytes)
		require.Equal(t, "+OK\r\n", ask("set", "k", "v"))
		cl.diskFull.Store(true)
		reached := cl.seq
		require.Equal(t, refusal, ask("set", "a", "b"))
		require.Equal(t, refusal, ask("publish", "c", large))
		require.Equal(t, refusal, ask("eval", "return 1", "0", large))
		require.Equal(t, refusal, ask("lock.acquire", "l", "o", "px", "1000"))
		require.Equal(t, "+OK\r\n", ask("multi"))
		require.Equal(t, refusal, ask("set", "a", "b"))
		require.Contains(t, ask("exec"), "-EXECABORT")
		require.Equal(t, "+OK\r\n", ask("multi"))
		for range 3 {
			require.Equal(t, "+QUEUED\r\n", ask("del", large[:fullDiskBytes/2]))
		}
		require.Contains(t, ask("exec"), "-EXECABORT Transaction discarded because of: MISCONF")
		require.Equal(t, reached, cl.seq)

		require.Equal(t, "$1\r\nv\r\n", ask("get", "k"))
		require.Equal(t, ":0\r\n", ask("exists", large), "reads take no log")
		require.Equal(t, ":0\r\n", ask("publish", "c", "x"))
		require.Contains(t, ask("eval", "return redis.call('set', 'a', 'b')", "0"), refusal[:len(refusal)-2])
		require.Equal(t, ":1\r\n", ask("del", "k"))
		cl.diskFull.Store(false)
		require.Equal(t, "+OK\r\n", ask("set", "a", "b"))
	})
}
