package wire

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// counting counts the reads.
type counting struct {
	io.Reader
	reads int
}

func (c *counting) Read(p []byte) (int, error) { c.reads++; return c.Reader.Read(p) }

// TestRoomOfAFrame: it grows with what has come, whatever the head announces, and in few steps.
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
