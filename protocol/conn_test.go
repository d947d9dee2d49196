package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire is a connection whose other end answers what is in replies.
type wire struct {
	io.Reader
	sent   bytes.Buffer
	writes int
	room   int // bytes that still leave; below 0: all
}

var errWire = errors.New("cut")

func (w *wire) Write(b []byte) (int, error) {
	w.writes++
	if w.room >= 0 && len(b) > w.room {
		return w.room, errWire
	}
	return w.sent.Write(b)
}

func newWire(replies string) *wire { return &wire{Reader: strings.NewReader(replies), room: -1} }

func TestConnSendsCommandsInOneWrite(t *testing.T) {
	w := newWire("+OK\r\n$1\r\nv\r\n")
	c := NewConn(w)
	c.Append("SET", "k", "")
	c.Append("GET", "k")
	n, err := c.Flush()
	require.NoError(t, err)
	const sent = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	require.Equal(t, sent, w.sent.String())
	require.Equal(t, len(sent), n)
	require.Equal(t, 1, w.writes)
	for _, want := range []Value{OK, Bulk("v")} {
		got, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = c.Do("PING")
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, sent+"*1\r\n$4\r\nPING\r\n", w.sent.String(), "nothing is sent twice")
}

func TestConnSaysHowMuchLeft(t *testing.T) {
	w := newWire("")
	w.room = 3
	c := NewConn(w)
	c.Append("PING")
	n, err := c.Flush()
	require.ErrorIs(t, err, errWire)
	require.Equal(t, 3, n)
}

func TestAppendCommandIsAnArrayOfBulkStrings(t *testing.T) {
	for _, words := range [][]string{{"PING"}, {"SET", "", "a\r\nb"}, {"MGET", strings.Repeat("k", 100)}} {
		require.Equal(t, string(Strings(words...).AppendTo(nil, RESP2)), string(AppendCommand(nil, words...)))
	}
}
