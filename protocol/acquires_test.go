package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcquires(t *testing.T) {
	for line, want := range map[string]bool{
		"set k v NX PX 30000": true,
		"set k v px 30000 nX": true,
		"setnx k v":           true,
		"set k v":             false,
		"set nx nx":           false,
		"set k v XX":          false,
		"get k":               false,
		"delifeq k v":         false,
		"evalsha nx 1 k NX":   false,
		"set":                 false,
	} {
		body := AppendRequestStrings(nil, 3, strings.Fields(line)...)
		require.Equal(t, want, Acquires(body), line)
		for n := range body {
			Acquires(body[:n]) // whatever it is, no panic
		}
	}
	require.False(t, Acquires(nil))
	require.False(t, Acquires([]byte{0, 200, 3, 's', 'e', 't', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}))
}
