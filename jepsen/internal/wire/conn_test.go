package wire

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol"
)

// serve answers whatever arrives with the given bytes, then closes or stays silent.
func serve(t *testing.T, answer string, thenClose bool) *Conn {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		buf := make([]byte, 4096)
		if _, err := server.Read(buf); err != nil {
			return
		}
		_, _ = io.WriteString(server, answer)
		if thenClose {
			server.Close()
		}
	}()
	t.Cleanup(func() { client.Close(); server.Close() })
	return New(client, time.Second)
}

func TestOutcomesByTheRules(t *testing.T) {
	cases := []struct {
		answer string
		close  bool
		want   history.Outcome
		why    string
		again  bool
		broken bool
	}{
		{"+OK\r\n", false, history.OK, "", false, false},
		{"$-1\r\n", false, history.OK, "", false, false},
		{"-ERR syntax error\r\n", false, history.Fail, "ERR syntax error", false, false},
		{"-CLUSTERDOWN no leader\r\n", false, history.Fail, "CLUSTERDOWN no leader", true, false},
		{"-UNCERTAIN it may have been applied\r\n", false, history.Info, "UNCERTAIN it may have been applied", false, false},
		{
			"-ERR x script: d99e277c, on @user_script:1.\r\n", false, history.Info,
			"ERR x script: d99e277c, on @user_script:1.", false, false,
		},
		{"-WHATEVER else\r\n", false, history.Info, "WHATEVER else", false, false},
		{"", false, history.Info, "timed out", true, true},
		{"", true, history.Info, "connection lost: EOF", true, true},
		{"$5\r\nab", true, history.Info, "connection lost: unexpected EOF", true, true},
		{"hello\r\n", false, history.Info, "connection lost: corrupt reply", true, true},
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			conn := serve(t, c.answer, c.close)
			got := conn.Do("SET", "k", "v")
			require.Equal(t, c.want, got.Outcome, c.answer)
			require.Contains(t, got.Why, c.why)
			require.Equal(t, c.again, got.Retried)
			require.Equal(t, c.broken, conn.Broken())
			if c.broken {
				require.Equal(t, history.Fail, conn.Do("GET", "k").Outcome, "nothing is sent on a broken connection")
			}
		})
	}
}

func TestPipelineKeepsOrderAndLosesOnlyWhatIsMissing(t *testing.T) {
	conn := serve(t, ":1\r\n-ERR no\r\n*2\r\n$1\r\na\r\n*-1\r\n", true)
	got := conn.Pipeline([][]string{{"A"}, {"B"}, {"C"}, {"D"}})
	require.Equal(t, protocol.Integer(1), got[0].Value)
	require.Equal(t, history.Fail, got[1].Outcome)
	require.Equal(t, protocol.Array(protocol.Bulk("a"), protocol.NullArray), got[2].Value)
	require.Equal(t, history.Info, got[3].Outcome)
}

const lostPush = ">2\r\n$4\r\nlock\r\n$4\r\nlost\r\n"

var lostValue = protocol.Push(protocol.Bulk("lock"), protocol.Bulk("lost"))

func TestPushesAreNoReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := serve(t, lostPush+":1\r\n"+lostPush+lostPush+"+OK\r\n", false)
		var heard []protocol.Value
		conn.OnPush = func(v protocol.Value) { heard = append(heard, v) }
		require.Equal(t, protocol.Integer(1), conn.Do("A").Value)
		require.Equal(t, []protocol.Value{lostValue}, heard)
		require.True(t, conn.Listen(time.Minute, func() bool { return len(heard) == 2 }))
		require.False(t, conn.Listen(time.Minute, func() bool { return len(heard) == 4 }), "a reply that nobody asked for")
		require.Len(t, heard, 3)
	})
}

func TestListenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn := New(client, time.Second)
		never := func() bool { return false }
		began := time.Now()
		require.True(t, conn.Listen(3*time.Second, never))
		require.Equal(t, 3*time.Second, time.Since(began))
		go func() {
			time.Sleep(2 * time.Second)
			_, _ = io.WriteString(server, lostPush[:5])
		}()
		require.False(t, conn.Listen(2500*time.Millisecond, never),
			"half a push and no more for as long as an exchange may take")
		require.Equal(t, 6*time.Second, time.Since(began))
	})
}

func TestSlowCommandsHaveMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn := New(client, time.Second)
		go func() { _, _ = server.Read(make([]byte, 99)) }()
		go func() {
			time.Sleep(3 * time.Second)
			_, _ = io.WriteString(server, "+OK\r\n")
		}()
		require.Equal(t, history.OK, conn.DoWithin(3*time.Second, "BLPOP").Outcome)
		go func() { _, _ = server.Read(make([]byte, 99)) }()
		began := time.Now()
		require.Equal(t, history.Info, conn.Do("GET").Outcome)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestSubscribersHearMessages(t *testing.T) {
	const said = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:2\r\n"
	conn := serve(t, said+"*0\r\n", false)
	var heard []protocol.Value
	conn.OnPush = func(v protocol.Value) { heard = append(heard, v) }
	got := conn.Pipeline([][]string{{"SUBSCRIBE", "c"}, {"SUBSCRIBE", "d"}, {"KEYS", "*"}})
	require.Equal(t, "c", got[0].Value.Elems[1].Str)
	require.Equal(t, "d", got[1].Value.Elems[1].Str)
	require.Empty(t, got[2].Value.Elems)
	require.Len(t, heard, 1)
}
