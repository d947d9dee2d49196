package forward

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

func TestFrames(t *testing.T) {
	hello := greeting{version: 1, id: "n1", epoch: 1 << 40, addresses: Addresses{ClientAddr: "[::1]:6379", SentinelAddr: "s"}}
	var stream []byte
	stream = append(stream, wire.Seal(hello.append(make([]byte, wire.Head), kindHello))...)
	big := bytes.Repeat([]byte("x"), 3*wire.Step)
	stream = append(stream, wire.Seal(append(make([]byte, wire.Head), big...))...)
	r := bufio.NewReader(bytes.NewReader(stream))
	got, err := readGreeting(r, kindHello)
	require.NoError(t, err)
	require.Equal(t, hello, got)
	frame, err := wire.Read(r, nil, len(big))
	require.NoError(t, err)
	require.Equal(t, big, frame)

	_, err = wire.Read(bufio.NewReader(bytes.NewReader(wire.Seal(append(make([]byte, wire.Head), big...)))), nil, len(big)-1)
	require.ErrorIs(t, err, wire.ErrCorrupt)
	_, err = readGreeting(bufio.NewReader(bytes.NewReader(stream)), kindWelcome)
	require.ErrorIs(t, err, wire.ErrCorrupt)
}

// Whatever a peer sends, reading it ends, and without a panic.
func FuzzFields(f *testing.F) {
	f.Add(wire.AppendBytes([]byte{kindWrite, 1, 1}, "body"))
	f.Add(appendValues([]byte{kindWrote, 1}, []protocol.Value{protocol.OK, protocol.Array(protocol.Integer(1))}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		in := wire.Fields[string]{Rest: string(frame)}
		for in.More() {
			switch in.Kind() {
			case kindWrite:
				in.Number()
				in.Number()
				in.Bytes()
			case kindWrote:
				in.Number()
				values(&in)
			default:
				in.Number()
			}
		}
		_, _ = wire.Read(bufio.NewReader(bytes.NewReader(frame)), nil, 1<<20)
	})
}
