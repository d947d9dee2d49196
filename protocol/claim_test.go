package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSetNXKey(t *testing.T) {
	body := func(line string) []byte { return appendRequest(nil, 3, strings.Fields(line)...) }
	for line, want := range map[string]string{
		"set k v NX PX 30000": "k",
		"set k v px 30000 nX": "k",
		"setnx key v":         "key",
		"set k v":             "",
		"set nx nx":           "",
		"set k v XX":          "",
		"get k":               "",
		"delifeq k v":         "",
		"evalsha nx 1 k NX":   "",
		"set":                 "",
		"setnx":               "",
	} {
		db, key, ok := SetNXKey(body(line))
		require.Equal(t, want != "", ok, line)
		require.Equal(t, want, string(key), line)
		require.Equal(t, map[bool]int{true: 3}[ok], db, line)
		for n := range body(line) {
			_, _, ok := SetNXKey(body(line)[:n])
			require.False(t, ok, "%s, %d bytes of it", line, n)
		}
	}
	for _, other := range [][]byte{
		nil,
		{0, 200, 3, 's', 'e', 't', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		append([]byte{MaxDatabases}, body("setnx k v")[1:]...),
		append(body("setnx k v"), body("get k")...),
	} {
		_, _, ok := SetNXKey(other)
		require.False(t, ok, "%q", other)
	}
}
