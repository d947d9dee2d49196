//go:build unix

package clienttest_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

// A program that uses Go's library in a wrong way is told how.
func TestMistaken(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "redis://127.0.0.1:1"} {
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
