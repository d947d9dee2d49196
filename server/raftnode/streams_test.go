package raftnode

import (
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// pipe is a stream of one connection. It counts the calls of Stuck.
type pipe struct {
	net.Conn
	stuck int
}

func (p *pipe) Accept() (net.Conn, error)                                { return p, nil }
func (p *pipe) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) { return p, nil }
func (p *pipe) Addr() net.Addr                                           { return p.LocalAddr() }
func (p *pipe) Stuck()                                                   { p.stuck++ }

// closedLayer is a stream without connections.
type closedLayer struct{ *pipe }

func (closedLayer) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func (closedLayer) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, net.ErrClosed
}

func TestNoConnection(t *testing.T) {
	conn, err := streams{closedLayer{}, time.Second}.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.Nil(t, conn)
	conn, err = streams{closedLayer{}, time.Second}.Dial("n2", time.Second)
	require.ErrorIs(t, err, net.ErrClosed)
	require.Nil(t, conn)
}

// TestRequestThatDoesNotComeOn: between requests there is no deadline. If a request that has begun does not continue,
// its connection is closed.
func TestRequestThatDoesNotComeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn, err := streams{&pipe{Conn: near}, 2 * time.Second}.Accept()
		require.NoError(t, err)
		b := make([]byte, 10)
		for range 2 {
			go func() {
				time.Sleep(time.Hour)
				_, _ = far.Write([]byte("re"))
				time.Sleep(time.Second)
				_, _ = far.Write([]byte("quest"))
				_, _ = far.Read(make([]byte, 10))
			}()
			for _, piece := range []string{"re", "quest"} {
				n, err := conn.Read(b)
				require.NoError(t, err)
				require.Equal(t, piece, string(b[:n]))
			}
			time.Sleep(time.Hour) // the answer takes an hour
			_, err = conn.Write([]byte("answer"))
			require.NoError(t, err)
		}
		go func() { _, _ = far.Write([]byte("re")) }()
		_, err = conn.Read(b)
		require.NoError(t, err)
		begun := time.Now()
		_, err = conn.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(begun))
		_, err = far.Read(b)
		require.Error(t, err, "the connection has ended")
	})
}

// TestLargeRequestThatIsNotTaken: a request that is larger than the kernels' buffers fails during its write, and counts
// as stuck.
func TestLargeRequestThatIsNotTaken(t *testing.T) {
	near, far := net.Pipe()
	p := &pipe{Conn: near}
	conn, err := streams{StreamLayer: p}.Dial("n2", 0)
	require.NoError(t, err)
	go func() {
		_, _ = io.CopyN(io.Discard, far, 5000)
		_ = far.Close()
	}()
	for err == nil {
		_, err = conn.Write(make([]byte, 1000))
	}
	require.Equal(t, 1, p.stuck)
	_, err = conn.Read(make([]byte, 10))
	require.Error(t, err)
	require.Equal(t, 1, p.stuck, "the stalled connection is reported once")
}

// TestLargeRequestWithoutAnAnswer: a large request without an answer counts as stuck, after which the port sends small
// packets. A small request, or one with an answer, does not.
func TestLargeRequestWithoutAnAnswer(t *testing.T) {
	for _, c := range []struct {
		bytes  int
		answer bool
		want   int
	}{{5000, false, 1}, {5000, true, 0}, {500, false, 0}} {
		near, far := net.Pipe()
		p := &pipe{Conn: near}
		conn, err := streams{StreamLayer: p}.Dial("n2", 0)
		require.NoError(t, err)
		go func() {
			for got := 0; got < c.bytes; {
				n, _ := far.Read(make([]byte, c.bytes))
				got += n
			}
			if c.answer {
				_, _ = far.Write([]byte("yes"))
			}
			_ = far.Close()
		}()
		_, err = conn.Write(make([]byte, c.bytes))
		require.NoError(t, err)
		for err == nil {
			_, err = conn.Read(make([]byte, 10))
		}
		require.Equal(t, c.want, p.stuck)
		_, err = conn.Read(make([]byte, 10))
		require.Error(t, err)
		require.Equal(t, c.want, p.stuck, "the stalled connection is reported once")
	}
}
