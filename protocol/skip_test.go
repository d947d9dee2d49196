package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBodyLen(t *testing.T) {
	var body []byte
	ends := []int{0}
	for _, line := range []string{"set k v", "get k", "mget " + strings.Repeat("k ", 200), "set k " +
		strings.Repeat("x", 300), "ping"} {
		body = appendRequest(body, len(ends), strings.Fields(line)...)
		ends = append(ends, len(body))
	}
	for n, end := range ends {
		require.Equal(t, end, BodyLen(body, n))
		require.Equal(t, end-ends[min(1, n)], BodyLen(body[ends[1]:], n-1), "from the second on")
	}
	require.Equal(t, len(body), BodyLen(body, 100))
	for cut := range body { // what is no body is taken for one piece
		require.LessOrEqual(t, BodyLen(body[:cut], 3), cut)
	}
	require.Equal(t, 3, BodyLen([]byte{0, 255, 255}, 1))
}
