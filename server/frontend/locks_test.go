package frontend

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// unread is a client that reads no more than it is told to.
type unread struct {
	t  *testing.T
	nc net.Conn
}

// ask sends a command and reads a reply of that many bytes.
func (u unread) ask(reply string, words ...string) {
	_, err := u.nc.Write(command(words...))
	require.NoError(u.t, err)
	got := make([]byte, len(reply))
	_, err = io.ReadFull(u.nc, got)
	require.NoError(u.t, err)
	require.Equal(u.t, reply, string(got))
}

// TestUnreadGrantIsGivenBack: a client that closes before it was told of the grant that it waited for holds
// nothing, and one that was told keeps the lock.
func TestUnreadGrantIsGivenBack(t *testing.T) {
	for _, notify := range []string{"", "NOTIFY"} {
		for _, reads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, Config{}, newCluster())
				nc, err := s.ln.dial()
				require.NoError(t, err)
				waiter, other := unread{t, nc}, s.dial()
				_, err = nc.Write(command("HELLO", "3"))
				require.NoError(t, err)
				_, err = io.ReadAtLeast(nc, make([]byte, 4096), 100)
				require.NoError(t, err)
				require.Equal(t, ":1\r\n", answer(other, "LOCK.ACQUIRE", "k", "holder", "PX", "60000"))
				line := []string{"LOCK.ACQUIRE", "k", "waiter", "PX", "60000", "WAIT", "0"}
				told := ":2\r\n"
				if notify == "" {
					_, err = nc.Write(command(line...))
					require.NoError(t, err)
				} else {
					waiter.ask(":0\r\n", append(line, notify)...)
					told = ">5\r\n$4\r\nlock\r\n$7\r\ngranted\r\n$1\r\nk\r\n$6\r\nwaiter\r\n:2\r\n"
				}
				synctest.Wait()
				require.Equal(t, ":0\r\n", answer(other, "LOCK.RELEASE", "k", "holder"))
				if reads {
					waiter.ask(told+"+PONG\r\n", "PING")
				}
				require.Equal(t, ":2\r\n", answer(other, "LOCK.CHECK", "k", "waiter"))
				nc.Close()
				time.Sleep(time.Second)
				want := "$-1\r\n"
				if reads {
					want = ":2\r\n"
				}
				require.Equal(t, want, answer(other, "LOCK.CHECK", "k", "waiter"))
				s.stop()
			})
		}
	}
}

// answer sends a command and returns the bytes of the reply.
func answer(c *testClient, words ...string) string {
	c.send(command(words...))
	settle()
	got, _ := c.take()
	return got
}

// TestNoticesAreBounded: in number and in bytes. What ends is not counted any more.
func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		holder, c := s.dial(), s.dial()
		key := strings.Repeat("k", 60_000)
		require.Equal(t, ":1\r\n", answer(holder, "LOCK.ACQUIRE", key, "holder", "PX", "60000"))
		waiting := 0
		for ; waiting < mostNotices; waiting++ {
			if got := answer(c, "LOCK.ACQUIRE", key, strings.Repeat("o", waiting), "PX", "60000", "WAIT", "0", "NOTIFY"); got != ":0\r\n" {
				require.Equal(t, "-ERR too many waits with NOTIFY on this connection\r\n", got)
				break
			}
		}
		require.Greater(t, waiting, 200)
		require.Less(t, waiting, 300)
		var held int
		for _, conn := range s.clients() {
			held = max(held, conn.footprint())
		}
		require.Greater(t, held, waiting*60_000)
		require.Equal(t, ":1\r\n", answer(c, "LOCK.CANCEL", key, "o"))
		require.Equal(t, ":0\r\n", answer(c, "LOCK.ACQUIRE", key, "o", "PX", "60000", "WAIT", "0", "NOTIFY"))
		c.nc.Close()
		time.Sleep(time.Second)
		require.Zero(t, s.cluster.LockStats().Waiting)
		require.Zero(t, s.cluster.lot.Len())
		s.stop()
	})
}

// TestBreaksAreLogged: who took a lock away, from where, and why, also from a transaction.
func TestBreaksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		var lines bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		c := s.dial()
		for _, line := range []string{
			"CLIENT SETNAME ops", "LOCK.ACQUIRE k me PX 60000", "LOCK.BREAK k FENCE 9 REASON none", "LOCK.BREAK k FENCE 1 DELAY 5 REASON stuck",
			"LOCK.ACQUIRE l me PX 60000", "MULTI", "SET x 1", "LOCK.BREAK l REASON again", "EXEC",
		} {
			require.NotContains(t, answer(c, strings.Fields(line)...), "-", line)
		}
		logged := lines.String()
		require.Equal(t, 2, strings.Count(logged, "lock broken by force"), logged)
		require.Contains(t, logged, "key=k fence=1 reason=stuck db=0 holds=1 client=pipe id=1 name=ops")
		require.Contains(t, logged, "key=l reason=again db=0 holds=1 client=pipe id=1 name=ops")
		s.stop()
	})
}
