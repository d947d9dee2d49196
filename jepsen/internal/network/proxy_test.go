package network

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers every line with itself, at a node's listen address.
func echo(t *testing.T, addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
}

func newEchoNet(t *testing.T) *Proxies {
	t.Helper()
	p, err := NewProxies(2, "client", "peer")
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	echo(t, p.Listen("n2", "client"))
	echo(t, p.Listen("n2", "peer"))
	return p
}

func dial(t *testing.T, p *Proxies, from, purpose string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := p.Dial(context.Background(), from, "n2", purpose)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func say(t *testing.T, c net.Conn, r *bufio.Reader, line string) {
	t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(t, err)
	got, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, line+"\n", got)
}

// silent checks that nothing arrives for a moment.
func silent(t *testing.T, c net.Conn, r *bufio.Reader) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := r.ReadByte()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

func TestCutHoldsBackOneDirectionAndHealSendsIt(t *testing.T) {
	for _, cut := range []Link{{"n1", "n2"}, {"n2", "n1"}} {
		p := newEchoNet(t)
		c, r := dial(t, p, "n1", "peer")
		say(t, c, r, "hello")
		require.NoError(t, p.Set(State{Cut: []Link{cut}}))
		_, err := io.WriteString(c, "lost?\n")
		require.NoError(t, err)
		silent(t, c, r)

		other, otherR := dial(t, p, "c1", "client")
		say(t, other, otherR, "clients are not cut")

		require.NoError(t, p.Set(State{}))
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "lost?\n", line)
	}
}

func TestCutByResetEndsConnections(t *testing.T) {
	p := newEchoNet(t)
	c, r := dial(t, p, "n1", "peer")
	say(t, c, r, "hello")
	require.NoError(t, p.Set(State{Cut: []Link{{"n1", "n2"}}, Reset: true}))
	_, err := r.ReadByte()
	require.Error(t, err)

	again, againR := dial(t, p, "n1", "peer")
	_, _ = io.WriteString(again, "hello\n")
	_, err = againR.ReadByte()
	require.Error(t, err)

	require.NoError(t, p.Set(State{}))
	c, r = dial(t, p, "n1", "peer")
	say(t, c, r, "hello")
}

func TestNewConnectionsWaitWhileCut(t *testing.T) {
	p := newEchoNet(t)
	require.NoError(t, p.Set(State{Cut: []Link{{"n1", "n2"}}}))
	c, r := dial(t, p, "n1", "peer")
	_, err := io.WriteString(c, "hello\n")
	require.NoError(t, err)
	silent(t, c, r)
	require.NoError(t, p.Set(State{}))
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
}

func TestHarnessIsNeverCutOff(t *testing.T) {
	p := newEchoNet(t)
	require.NoError(t, p.Set(State{Cut: []Link{{"n1", "n2"}, {"c1", "n2"}, {"c2", "n2"}}}))
	c, r := dial(t, p, "", "client")
	say(t, c, r, "hello")
}
