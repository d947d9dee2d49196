//go:build unix

package clienttest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

// Wrong use of Go's library is an error that says what is wrong.
func TestMistaken(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "redis://127.0.0.1:1", "a:", "a:abc", "a:0", "a:65536"} {
		_, err := holdfast.New(holdfast.Config{Addrs: []string{addr}})
		require.ErrorContains(t, err, addr)
	}
	_, err := holdfast.New(holdfast.Config{Addrs: []string{"node"}, Dial: new(net.Dialer).DialContext})
	require.NoError(t, err, "what an address is, is the dialer's")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for nc, err := listener.Accept(); err == nil; nc, err = listener.Accept() {
			_, _ = io.WriteString(nc, "-ERR this is no TLS\r\n")
		}
	}()
	var log bytes.Buffer
	addr := listener.Addr().String()
	client, err := holdfast.New(holdfast.Config{
		Addrs: []string{addr}, TLS: &tls.Config{MinVersion: tls.VersionTLS12},
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(t, err)
	for range 2 {
		_, err = client.TryLock(t.Context(), "nightly")
		require.ErrorAs(t, err, new(*holdfast.RefusedError))
		require.ErrorContains(t, err, "TLS")
		require.Equal(t, 1, strings.Count(err.Error(), addr), err)
	}
	require.NoError(t, client.Close())
	require.Equal(t, 1, strings.Count(log.String(), "no node can be used"), log.String())
}

// TestMistakenForPlain: the error of a client without TLS asks whether a port that closes in silence wants TLS.
func TestMistakenForPlain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for nc, err := listener.Accept(); err == nil; nc, err = listener.Accept() {
			_, _ = nc.Read(make([]byte, 1024)) // what is left unread at the close would reset the connection
			nc.Close()
		}
	}()
	client, err := holdfast.New(holdfast.Config{Addrs: []string{listener.Addr().String()}})
	require.NoError(t, err)
	defer client.Close()
	_, err = client.TryLock(t.Context(), "nightly")
	require.ErrorContains(t, err, "does the port want TLS?")
}

// blockedLog is a handler of log records that returns once the channel is closed.
type blockedLog chan struct{}

func (b blockedLog) Enabled(context.Context, slog.Level) bool { return true }
func (b blockedLog) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b blockedLog) WithGroup(string) slog.Handler            { return b }
func (b blockedLog) Handle(context.Context, slog.Record) error {
	<-b
	return nil
}

// A log that blocks holds up neither a call nor the notice of a loss.
func TestBlockedLog(t *testing.T) {
	c, log := clienttest.Start(t, 1, "secret"), make(blockedLog)
	connect := func(addrs ...string) *holdfast.Client {
		client, err := holdfast.New(holdfast.Config{Addrs: addrs, Password: c.Password, Logger: slog.New(log)})
		require.NoError(t, err)
		return client
	}
	reached, unreached := connect(c.Addrs()...), connect("127.0.0.1:1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := unreached.TryLock(t.Context(), "job")
		assert.ErrorContains(t, err, "127.0.0.1:1")
		held, err := reached.TryLock(t.Context(), "job")
		if assert.NoError(t, err) {
			c.Break("job")
			<-held.Context().Done()
			assert.ErrorAs(t, held.Unlock(t.Context()), new(*holdfast.LostError))
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		assert.Fail(t, "held up")
	}
	close(log)
	<-done
	require.NoError(t, reached.Close())
	require.NoError(t, unreached.Close())
}
