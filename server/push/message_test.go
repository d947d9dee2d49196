package push_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// TestEncoding: the bytes are the bytes of the value in both versions, also when taken in pieces.
func TestEncoding(t *testing.T) {
	for name, v := range map[string]protocol.Value{
		"message":       protocol.Push(protocol.Bulk("message"), protocol.Bulk("c"), protocol.Bulk("a\r\nb")),
		"payload":       protocol.Push(protocol.Bulk("message"), protocol.Bulk(">c"), protocol.Bulk(">>a>")),
		"subscribe":     protocol.Push(protocol.Bulk("subscribe"), protocol.Bulk("c"), protocol.Integer(1)),
		"invalidate":    protocol.Push(protocol.Bulk("invalidate"), protocol.Strings("k", "l")),
		"invalidate, 0": protocol.Push(protocol.Bulk("invalidate"), protocol.Null),
		"monitor":       protocol.Simple("0.1 [0 lua] \"get\""),
	} {
		t.Run(name, func(t *testing.T) {
			m := push.New(v)
			for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
				want := v.AppendTo(nil, resp)
				require.Equal(t, len(want), m.Len(resp))
				for step := 1; step <= len(want); step++ {
					got := []byte("before")
					for from := 0; from < len(want); from += step {
						got = m.AppendFrom(got, resp, from, step)
					}
					require.Equal(t, "before"+string(want), string(got))
				}
			}
		})
	}
}

// TestHolders: the first and the last holder learn so.
func TestHolders(t *testing.T) {
	m := push.New(protocol.Push(protocol.Bulk("x")))
	require.True(t, m.Hold())
	require.False(t, m.Hold())
	require.False(t, m.Release())
	require.True(t, m.Release())
	require.Positive(t, m.Size())
}
