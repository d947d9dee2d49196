package frontend

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/stretchr/testify/require"
)

func many(n int, v protocol.Value) []protocol.Value {
	all := make([]protocol.Value, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// canned is a backend that replies to every request with the same value.
type canned struct {
	*cluster
	reply protocol.Value
}

func (b *canned) Execute(u *replica.Batch) error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
	for range u.Count {
		u.Replies = append(u.Replies, b.reply)
	}
	return nil
}

// meteredListener records the size of the largest write of any connection.
type meteredListener struct {
	*memListener
	most atomic.Int64
}

func (l *meteredListener) Accept() (net.Conn, error) {
	nc, err := l.memListener.Accept()
	return &meteredConn{Conn: nc, most: &l.most}, err
}

type meteredConn struct {
	net.Conn
	most *atomic.Int64
}

func (c *meteredConn) Write(b []byte) (int, error) {
	c.most.Store(max(c.most.Load(), int64(len(b))))
	return c.Conn.Write(b)
}

// TestRepliesAreWrittenInPieces shows that no reply is encoded as a whole, whatever its shape and source: each write
// has a bounded size.
func TestRepliesAreWrittenInPieces(t *testing.T) {
	protocoltest.SkipShort(t, "megabytes of replies")
	long := protocol.Bulk(strings.Repeat("x", 1<<20))
	docs := protocol.Redis().DocumentCommands(nil)
	for _, test := range []struct {
		name   string
		reply  protocol.Value
		lines  string
		answer func(reply protocol.Value) []protocol.Value
	}{
		{name: "a long string", reply: long},
		{name: "a long error", reply: protocol.Err(long.Str)},
		{name: "a short array of long strings", reply: protocol.Array(many(20, long)...)},
		{name: "a long array", reply: protocol.Array(many(100_000, protocol.Bulk("0123456789"))...)},
		{
			name:  "nested arrays",
			reply: protocol.Array(protocol.Array(protocol.Array(many(9, protocol.Array(many(3, long)...))...))),
		},
		{name: "a map", reply: protocol.Map(many(20, long)...)},
		{name: "a pipeline of long strings", reply: long, lines: "GET k\nGET k\nGET k\nGET k\nGET k"},
		{
			name: "what the node itself answers, behind a reply that is waited for", reply: protocol.Null,
			lines: "GET k" + strings.Repeat("\nCOMMAND DOCS", 20),
			answer: func(reply protocol.Value) []protocol.Value {
				return append([]protocol.Value{reply}, many(20, docs)...)
			},
		},
		{
			name: "the same in a transaction", reply: protocol.Array(many(3, long)...),
			lines: "MULTI\nGET k\nGET k\nGET k" + strings.Repeat("\nCOMMAND DOCS", 20) + "\nEXEC",
			answer: func(reply protocol.Value) []protocol.Value {
				all := append([]protocol.Value{protocol.OK}, many(23, protocol.Simple("QUEUED"))...)
				return append(all, protocol.Array(append(many(3, long), many(20, docs)...)...))
			},
		},
	} {
		for _, version := range []int{protocol.RESP2, protocol.RESP3} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ln := &meteredListener{memListener: newMemListener()}
					s := startOver(t, Config{}, &canned{cluster: newCluster(), reply: test.reply}, ln)
					s.ln = ln.memListener
					c := s.dial()
					if version == protocol.RESP3 {
						answer(c, "HELLO", "3")
					}
					lines := strings.Split(test.lines, "\n")
					if test.lines == "" {
						lines = []string{"GET k"}
					}
					var sent []byte
					for _, line := range lines {
						sent = append(sent, command(strings.Fields(line)...)...)
					}
					var want []byte
					answers := many(len(lines), test.reply)
					if test.answer != nil {
						answers = test.answer(test.reply)
					}
					for _, v := range answers {
						want = v.AppendTo(want, version)
					}
					c.deliver(sent)
					got, _ := c.take()
					require.True(t, string(want) == got, "%d bytes instead of %d", len(got), len(want))
					require.LessOrEqual(t, ln.most.Load(), int64(clientChunk+localBytes))
				})
			})
		}
	}
}

// TestRepliesTooLargeToSend shows that a reply larger than MaxOutputBytes is recognized before it is encoded, and that
// the error in its place tells whether the command was applied.
func TestRepliesTooLargeToSend(t *testing.T) {
	// absurd has 65,000 to the fifth power strings of 100 bytes.
	absurd := protocol.Bulk(strings.Repeat("x", 100))
	for range 5 {
		absurd = protocol.Array(many(65_000, absurd)...)
	}
	const read = "-ERR the reply is larger than max-output-bytes"
	const wrote = "-UNCERTAIN The command was applied, but its reply is larger than max-output-bytes"
	for _, test := range []struct {
		reply protocol.Value
		line  string
		want  string
	}{
		{absurd, "MGET k", read},
		{absurd, "EVAL_RO return 0", read},
		{absurd, "EVAL return 0", wrote},
		{protocol.Bulk(strings.Repeat("x", 1000)), "GET k", read},
		{protocol.Bulk(strings.Repeat("x", 1000)), "GETDEL k", wrote},
		{protocol.Bulk(strings.Repeat("x", 990)), "GET k", `"` + strings.Repeat("x", 990) + `"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := startOver(t, Config{Limits: Limits{MaxOutputBytes: 1000}}, &canned{cluster: newCluster(), reply: test.reply},
				newMemListener())
			c := s.dial()
			c.deliver(append(command(strings.Fields(test.line)...), command("PING")...))
			got, _ := c.take()
			require.Equal(t, []string{test.want, "+PONG"}, show(got))
		})
	}
	require.Equal(t, protocol.OutcomeNone, protocol.OutcomeOf(strings.TrimPrefix(read, "-")))
	require.Equal(t, protocol.OutcomeUnknown, protocol.OutcomeOf(strings.TrimPrefix(wrote, "-")))
}

// TestTransactionTooLargeToAnswer shows that a transaction whose reply is too large takes effect, including its SELECT.
func TestTransactionTooLargeToAnswer(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxOutputBytes: 1000}}, func(t *testing.T, s *testServer) {
		c := s.dial()
		c.send(command("SET", "k", strings.Repeat("x", 600)))
		for _, line := range []string{"MULTI", "GET k", "GET k", "SELECT 3", "SET in3 yes", "EXEC", "GET in3"} {
			c.deliver(command(strings.Fields(line)...))
		}
		got, _ := c.take()
		require.Equal(t, []string{
			"+OK", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED",
			"-UNCERTAIN The command was applied, but its reply is larger than max-output-bytes", `"yes"`,
		}, show(got))
	})
}

// TestStrangersMustRead shows that a client that has not authenticated is disconnected when a write stalls for the
// first time, and that no further input is read before. Other clients may send a whole pipeline before they read.
func TestStrangersMustRead(t *testing.T) {
	own, pool := certificate(t)
	for _, encrypted := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Users: asks("sesame")}
				if encrypted {
					cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
				}
				ln := &meteredListener{memListener: newMemListener()}
				s := startOver(t, cfg, &canned{cluster: newCluster()}, ln)
				s.ln = ln.memListener
				nc := s.silent()
				if encrypted {
					nc = tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "localhost"})
				}
				pipeline := bytes.Repeat([]byte("PING\r\n"), 100_000)
				if known {
					pipeline = append([]byte("AUTH sesame\r\n"), pipeline...)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := nc.Write(pipeline)
					ended <- err
				}()
				settle()
				time.Sleep(time.Second)
				synctest.Wait()
				if known {
					require.NoError(t, <-ended)
					require.Zero(t, s.metrics.CutOff.Load())
				} else {
					require.Error(t, <-ended)
					synctest.Wait() // the connection is closed before it is counted
					require.Equal(t, uint64(1), s.metrics.CutOff.Load())
					require.LessOrEqual(t, s.metrics.BytesIn.Load(), uint64(64<<10))
					require.LessOrEqual(t, ln.most.Load(), int64(2*strangerChunk))
					require.Zero(t, s.clientCount())
				}
			})
		}
	}
}

// TestFewRepliesWaitForTheBatch shows that the local replies that wait for a batch are bounded: a pipeline with many
// large ones becomes several batches.
func TestFewRepliesWaitForTheBatch(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		docs := len(protocol.Redis().DocumentCommands(nil).AppendTo(nil, protocol.RESP2))
		c.deliver(bytes.Repeat(append(command("GET", "k"), command("COMMAND", "DOCS")...), 20))
		got, _ := c.take()
		require.Len(t, got, 20*(len("$-1\r\n")+docs))
		require.Greater(t, len(cl.take()), 20*docs/(localBytes+docs))
	})
}

// TestUnknownFailures shows that a failure of the backend with an unknown outcome, or too few replies, becomes
// UNCERTAIN.
func TestUnknownFailures(t *testing.T) {
	for _, few := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cl := newCluster()
			var backend Backend = cl
			cl.fail = errors.New("something went wrong")
			if few {
				backend = &forgetful{cl}
			}
			s := startOver(t, Config{}, backend, newMemListener())
			c := s.dial()
			c.deliver(append(command("SET", "k", "v"), command("PING")...))
			got, _ := c.take()
			require.Equal(t, "-"+protocol.ErrUncertain.Error()+"\r\n+PONG\r\n", got)
		})
	}
}

// forgetful is a backend that returns no replies.
type forgetful struct{ *cluster }

func (forgetful) Execute(*replica.Batch) error { return nil }
