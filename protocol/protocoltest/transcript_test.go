package protocoltest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"set", "a b", `c"d`, "", `e\n`}, Words(t, ` set  "a b" c"d "" `+"`e\\n` "))
	require.Empty(t, Words(t, "  "))
}
