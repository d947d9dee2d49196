package wire

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// counting counts the calls of Read.
type counting struct {
	io.Reader
	reads int
}

func (c *counting) Read(p []byte) (int, error) { c.reads++; return c.Reader.Read(p) }

// TestRoomOfAFrame shows that the buffer of a frame grows in few steps with the bytes that have arrived, whatever
// length the head announces.
func TestRoomOfAFrame(t *testing.T) {
	frame := Seal(make([]byte, Head+40*Step))
	buf, err := Read(bufio.NewReader(bytes.NewReader(frame[:3*Step])), nil, len(frame))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, cap(buf), 6*Step)

	all := &counting{Reader: bytes.NewReader(frame)}
	buf, err = Read(bufio.NewReader(all), nil, len(frame))
	require.NoError(t, err)
	require.True(t, bytes.Equal(frame[Head:], buf))
	require.Less(t, all.reads, 15)
}
