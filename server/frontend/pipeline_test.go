package frontend

import (
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// settle sleeps longer than the server waits for the rest of a command, and then waits until the server is idle.
func settle() {
	time.Sleep(2 * readMoreTime)
	synctest.Wait()
}

// sets returns a pipeline of n commands SET k<i> <i>.
func sets(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, command("SET", fmt.Sprint("k", i), fmt.Sprint(i))...)
	}
	return b
}

// names returns the first two words of each command of a batch.
func names(t *testing.T, u replica.Batch) (all []string) {
	var r protocol.Request
	for body := string(u.Body); body != ""; {
		var err error
		body, err = protocol.NextRequest(body, &r)
		require.NoError(t, err)
		all = append(all, strings.Join(r.Args[:min(2, len(r.Args))], " "))
	}
	require.Len(t, all, u.Count)
	return all
}

// TestHints shows which hints each kind of batch has for those that schedule it.
func TestHints(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		large := "return 1 --" + strings.Repeat("x", largeSource)
		for want, pipelines := range map[protocol.Hints][][]string{
			protocol.CreateIfAbsent: {{"SETNX k v"}, {"SET k v PX 9 nx"}, {"set k v NX"}},
			protocol.MayWait: {
				{"LOCK.ACQUIRE l me PX 1"},
				{"LOCK.ACQUIREALL 1 l me PX 1"},
				{"BLPOP q 1"},
				{"LOCK.ACQUIRE l you PX 1 WAIT 1"},
				{"LOCK.ACQUIRE l they PX 1 WAIT 1 NOTIFY"},
			},
			protocol.LargeScript: {
				{"EVAL %s 0"}, {"SCRIPT LOAD %s"}, {"EVAL %s 0", "SETNX k v"}, {"MULTI", "EVAL %s 0", "SET k v", "EXEC"},
			},
			0: {
				{"SET k v"},
				{"SET nx nx"},
				{"GET k"},
				{"SETNX k v", "SETNX k w"},
				{"SET k v", "SET k w NX"},
				{"SET k v NX", "GET k"},
				{"MULTI", "SETNX k v", "EXEC"},
				{"EVAL return+1 0"},
				{"EVALSHA x 0"},
				{"LOCK.RELEASE l me"},
			},
		} {
			for _, pipeline := range pipelines {
				c, sent := s.dial(), []byte(nil)
				for _, line := range pipeline {
					words := strings.Fields(strings.ReplaceAll(line, "+", "\t"))
					for i, word := range words {
						words[i] = strings.ReplaceAll(word, "%s", large)
					}
					sent = append(sent, command(words...)...)
				}
				cl.take()
				c.send(sent)
				time.Sleep(10 * time.Millisecond)
				settle()
				batches := cl.take()
				require.NotEmpty(t, batches, "%v", pipeline)
				require.Equal(t, want, batches[0].Hints, "%v", pipeline)
			}
		}
	})
}

// TestBatchesSayTheirWork shows that the work of a batch includes what its scripts took when they ran last, and
// lockWork for each lock command. The next batch on the connection does not include it.
func TestBatchesSayTheirWork(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		const source = "for i=1,200000 do end return 1"
		sha := fmt.Sprintf("%x", sha1.Sum([]byte(source)))
		eval, evalsha := command("EVAL", source, "0"), command("EVALSHA", sha, "0")
		work := func(commands ...[]byte) int64 {
			c := s.dial()
			cl.take()
			c.deliver(bytes.Join(commands, nil))
			batches := cl.take()
			require.Len(t, batches, 1)
			return batches[0].Work
		}
		require.Zero(t, work(eval), "nobody knows yet")
		once := work(eval)
		require.Greater(t, once, int64(fsm.MuchWork))
		require.Equal(t, once, work(evalsha))
		require.Equal(t, 2*once, work(eval, command("SET", "k", "v"), evalsha))
		require.Equal(t, 2*once, work(command("MULTI"), eval, evalsha, command("EXEC")))
		require.Zero(t, work(command("EVAL", "return 1", "0"), command("SET", "k", source)))
		acquire, release := command("LOCK.ACQUIRE", "l", "me", "PX", "1000"), command("LOCK.RELEASE", "l", "me")
		require.EqualValues(t, 2*lockWork, work(acquire, command("SET", "k", "v"), release))
		require.EqualValues(t, 2*lockWork, work(command("MULTI"), acquire, release, command("EXEC")))
		c := s.dial()
		c.deliver(eval)
		cl.take()
		c.deliver(command("SET", "k", "v"))
		require.Zero(t, cl.take()[0].Work)
	})
}

func TestPipelineIsOneBatch(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		c.deliver(sets(1000))
		got, _ := c.take()
		require.Equal(t, strings.Repeat("+OK\r\n", 1000), got)
		batches := cl.take()
		require.Len(t, batches, 1)
		require.Equal(t, 1000, batches[0].Count)
		require.True(t, batches[0].Write)
	})
}

// TestPipelineInPieces shows that the replies to a pipeline do not depend on the pieces in which it arrives.
func TestPipelineInPieces(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		all := sets(200)
		for _, piece := range []int{1, 7, 511, 512, 513, 4096} {
			c := s.dial()
			for rest := all; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				c.send(rest[:min(piece, len(rest))])
			}
			settle()
			got, _ := c.take()
			require.Equal(t, strings.Repeat("+OK\r\n", 200), got, "pieces of %d", piece)
			commands := 0
			for _, u := range cl.take() {
				commands += u.Count
			}
			require.Equal(t, 200, commands)
			c.nc.Close()
		}
	})
}

// TestHalfACommandIsWaitedForBriefly shows that the server waits for the rest of an incomplete command for
// readMoreTime, and then replies to the complete commands before it.
func TestHalfACommandIsWaitedForBriefly(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		half := command("SET", "k", "half")
		c.send(append(sets(2), half[:10]...))
		time.Sleep(readMoreTime / 2)
		synctest.Wait()
		got, _ := c.take()
		require.Empty(t, got)
		time.Sleep(readMoreTime)
		synctest.Wait()
		got, _ = c.take()
		require.Equal(t, "+OK\r\n+OK\r\n", got)
		// The rest of the command may arrive an hour later.
		time.Sleep(time.Hour)
		c.deliver(half[10:])
		got, _ = c.take()
		require.Equal(t, "+OK\r\n", got)
		require.Len(t, cl.take(), 2)
	})
}

func TestPipelineDepth(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxPipeline: 100}}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		c.deliver(sets(250))
		got, _ := c.take()
		require.Equal(t, strings.Repeat("+OK\r\n", 250), got)
		var counts []int
		for _, u := range cl.take() {
			counts = append(counts, u.Count)
		}
		require.Equal(t, []int{100, 100, 50}, counts)
	})
}

// TestPipelineOrder shows that local and data commands are answered in the order in which they were sent, and that the
// data commands nevertheless form one batch.
func TestPipelineOrder(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		var b []byte
		for _, line := range []string{
			"PING 0", "GET k", "SET k 1", "ECHO 2", "GET k", "NOSUCH", "SELECT 1", "GET k", "SELECT 0", "CLIENT ID", "INCR k",
			"PING 3",
			"MULTI", "INCR k", "GET k", "EXEC", "GET k", "HELLO 3", "GET none", "QUIT",
		} {
			b = append(b, command(strings.Fields(line)...)...)
		}
		c.deliver(b)
		got, closed := c.take()
		require.True(t, closed)
		lines := show(got)
		lines[17] = strings.Split(lines[17], " ")[0]
		require.Equal(t, []string{
			`"0"`, "nil", "+OK", `"2"`, `"1"`, "-ERR unknown command 'NOSUCH', with args beginning with: ", "+OK", "nil", "+OK",
			":1", ":2", `"3"`,
			"+OK", "+QUEUED", "+QUEUED", `[:3 "3"]`, `"3"`, `%{"server"`, "null", "+OK",
		}, lines)
		batches := cl.take()
		require.Len(t, batches, 1)
		require.Equal(t, []string{"get k", "set k", "get k", "get k", "incr k", "exec ", "get k", "get none"},
			names(t, batches[0]))
	})
}

// TestReadsAloneAreNoWrite shows that a batch is a write, and goes through the log, only if it has a write.
func TestReadsAloneAreNoWrite(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		for _, row := range []struct {
			line  string
			write bool
		}{
			{"GET k", false},
			{"OBJECT ENCODING k", false},
			{"script exists x", false},
			{"EVALSHA_RO x 0", false},
			{"EVALSHA x 0", true},
			{"Script Flush", true},
			{"WATCH k", false},
			{"TIME", false},
			{"DEL k", true},
		} {
			c.deliver(command(strings.Fields(row.line)...))
			batches := cl.take()
			require.Len(t, batches, 1, row.line)
			require.Equal(t, row.write, batches[0].Write, row.line)
			want := strings.ToLower(strings.Fields(row.line)[0])
			if f := strings.Fields(row.line); len(f) > 1 && (want == "object" || want == "script") {
				want += "|" + strings.ToLower(f[1])
			}
			require.Equal(t, want, strings.Fields(names(t, batches[0])[0])[0])
		}
	})
}

// TestBigCommandsGoAlone shows that a batch has at most batchBytes, unless it is a single command.
func TestBigCommandsGoAlone(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		big := strings.Repeat("x", batchBytes)
		c.deliver(append(append(sets(3), command("SET", "big", big)...), sets(2)...))
		var counts []int
		for _, u := range cl.take() {
			counts = append(counts, u.Count)
			require.True(t, u.Count == 1 || len(u.Body) <= batchBytes)
		}
		require.Equal(t, []int{3, 1, 2}, counts)
		c.take()
		require.Equal(t, []string{`"` + big + `"`}, show(answer(c, "GET", "big")))
	})
}

// TestBodiesAreNotReusedAfterAFailure shows that the body of a failed batch is not reused, since the backend may still
// hold it.
func TestBodiesAreNotReusedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{cluster: newCluster()}
		s := New(Config{}, h)
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { s.serveOne(t.Context(), theirs); close(done) }()
		go io.Copy(io.Discard, ours)
		for i := range 50 {
			ours.Write(command("SET", "k", strings.Repeat(fmt.Sprint(i%10), 10)))
			settle()
		}
		ours.Close()
		<-done
		for i, body := range h.bodies {
			require.Contains(t, string(body), strings.Repeat(fmt.Sprint(i%10), 10))
		}
		require.Len(t, h.bodies, 50)
	})
}

// limitedReplies is a backend with memory for the replies to two reads of a batch, and for none of a batch of three.
type limitedReplies struct {
	*cluster
	counts []int
}

func (b *limitedReplies) Execute(u *replica.Batch) error {
	b.counts = append(b.counts, u.Count)
	if err := b.cluster.Execute(u); err != nil || u.Write {
		return err
	}
	room := 2
	if u.Count == 3 {
		room = 0
	}
	for i := room; i < len(u.Replies); i++ {
		u.Replies[i] = protocol.ErrNoRoom.Value()
	}
	return nil
}

// TestReadsWithoutRoomAreMadeAgain shows that reads without memory for their replies are executed again, in order, once
// the replies before them are written. If a batch has no memory for any reply, its reads fail. Local replies keep their
// places.
func TestReadsWithoutRoomAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &limitedReplies{cluster: newCluster()}
		s := startOver(t, Config{}, b, newMemListener())
		c := s.dial()
		c.send([]byte("MSET a 1 b 2 c 3 d 4\r\n"))
		synctest.Wait()
		got, _ := c.take()
		require.Equal(t, "+OK\r\n", got)
		b.counts = nil
		c.send([]byte("PING\r\nGET a\r\nPING x\r\nGET b\r\nPING y\r\nGET c\r\nGET d\r\nPING z\r\nGET a\r\nGET " +
			"b\r\nPING\r\nGET c\r\nPING\r\n"))
		synctest.Wait()
		got, _ = c.take()
		none := "-" + protocol.ErrNoRoom.Error() + "\r\n"
		bulk := func(words string) string {
			return "$1\r\n" + strings.Join(strings.Fields(words), "\r\n$1\r\n") + "\r\n"
		}
		require.Equal(t, "+PONG\r\n"+bulk("1 x 2 y 3 4 z")+none+none+"+PONG\r\n"+none+"+PONG\r\n", got)
		require.Equal(t, []int{7, 5, 3}, b.counts)
		require.Contains(t, answer(c, "LATENCY", "HISTOGRAM", "get"), "$5\r\ncalls\r\n:7\r\n", "each GET counts once")
	})
}

// holder is a backend that fails each batch, and keeps its body.
type holder struct {
	*cluster
	bodies [][]byte
}

func (h *holder) Execute(u *replica.Batch) error {
	h.bodies = append(h.bodies, u.Body)
	return &protocol.Error{Prefix: "UNCERTAIN", Text: "who knows"}
}

// TestPipelineOverTCP shows that a pipeline over TCP is nearly always one batch, whether it is sent in one write or in
// the writes of a small buffer.
func TestPipelineOverTCP(t *testing.T) {
	cl := newCluster()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, Config{}, cl, ln)
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	all := sets(1000)
	want := bytes.Repeat([]byte("+OK\r\n"), 1000)
	got := make([]byte, len(want))
	const rounds = 20
	batches := 0
	for round := range rounds {
		piece := len(all)
		if round%2 == 1 {
			piece = 4096
		}
		for rest := all; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			_, err = nc.Write(rest[:min(piece, len(rest))])
			require.NoError(t, err)
		}
		_, err = io.ReadFull(nc, got)
		require.NoError(t, err)
		require.Equal(t, want, got)
		batches += len(cl.take())
	}
	// A write may end at the end of a command, and the scheduler may stop the client there.
	require.LessOrEqual(t, batches, 2*rounds)
	t.Logf("%d pipelines of 1000 commands became %d batches", rounds, batches)
}

// TestBigRepliesInPieces shows that a reply larger than a chunk of output arrives whole.
func TestBigRepliesInPieces(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		var keys []string
		value := make([]byte, 300)
		rand.Read(value)
		for i := range 3000 {
			keys = append(keys, fmt.Sprint("k", i))
			c.send(command("SET", keys[i], string(value)))
		}
		settle()
		c.take()
		c.deliver(append(command(append([]string{"MGET"}, keys...)...), command("PING")...))
		got, _ := c.take()
		lines := show(got)
		require.Len(t, lines, 2)
		require.Equal(t, "+PONG", lines[1])
		require.Greater(t, len(got), 3000*300)
	})
}

// TestCutsChangeNothing shows that the conversations of TestDifferential have the same replies at once, command by
// command, and byte by byte.
func TestCutsChangeNothing(t *testing.T) {
	text := protocoltest.ReadFile(t, "testdata/differential")
	for i, conversation := range strings.Split(text, "\n\n") {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{}
				if strings.HasPrefix(conversation, "# password") {
					cfg.Users = asks("sesame")
				}
				_, all := conversationBytes(t, conversation)
				whole := converseInPieces(t, cfg, [][]byte{all})
				require.Equal(t, whole, converseInPieces(t, cfg, bytes.SplitAfter(all, []byte("\r\n*"))),
					"by commands, more or less")
				require.Equal(t, whole, converseInPieces(t, cfg, bytes.SplitAfter(all, nil)), "by bytes")
			})
		})
	}
}

func converseInPieces(t *testing.T, cfg Config, pieces [][]byte) string {
	s := start(t, cfg, newCluster())
	c := s.dial()
	for _, piece := range pieces {
		c.send(piece)
	}
	settle()
	got, closed := c.take()
	s.stop()
	return fmt.Sprint(got, closed)
}

// TestTransactionsAreBounded shows that the queued commands of a transaction together are bounded by MaxQueryBytes.
func TestTransactionsAreBounded(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxQueryBytes: 1000}}, func(t *testing.T, s *testServer) {
		c := s.dial()
		c.send(command("MULTI"))
		for range 20 {
			c.send(command("SET", "k", strings.Repeat("v", 20)))
		}
		got := answer(c, "EXEC")
		require.Equal(t, 11, strings.Count(got, "+QUEUED\r\n"))
		require.Contains(t, got, "-ERR transaction exceeds the query buffer limit\r\n")
		require.True(t, strings.HasSuffix(got, "-EXECABORT Transaction discarded because of previous errors.\r\n"))
	})
}

// TestUnknownFailureIsUncertain shows that an error that is no [protocol.Error] becomes UNCERTAIN, since it does not
// say whether the command was applied.
func TestUnknownFailureIsUncertain(t *testing.T) {
	c := &conn{srv: New(Config{}, newCluster())}
	for _, err := range []error{errors.New("something"), errReplyCount, io.EOF} {
		require.Equal(t, protocol.ErrUncertain.Value(), c.srv.errorReply(err))
	}
	require.Equal(t, protocol.ErrBusy.Value(), c.srv.errorReply(fmt.Errorf("wrapped: %w", protocol.ErrBusy)))
}
