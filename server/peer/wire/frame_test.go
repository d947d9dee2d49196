package wire

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoomOfAFrame: it grows with what has come, whatever the head announces, and in few steps.
func TestRoomOfAFrame(t *testing.T) {
	frame := Seal(make([]byte, Head+40*Step))
	buf, err := Read(bufio.NewReader(bytes.NewReader(frame[:3*Step])), nil, len(frame))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, cap(buf), 6*Step)

	require.Less(t, testing.AllocsPerRun(1, func() {
		buf, err = Read(bufio.NewReader(bytes.NewReader(frame)), nil, len(frame))
	}), 15.)
	require.NoError(t, err)
	require.Equal(t, frame[Head:], buf)
}
