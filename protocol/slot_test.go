package protocol_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// The slots are those that redis-server 7.0.15 gives.
func TestKeySlot(t *testing.T) {
	t.Parallel()
	for key, slot := range map[string]int{
		"": 0, "foo": 12182, "123456789": 12739, "{a}b": 15495, "a": 15495, "x{a}{b}": 15495, "{}a": 10875, "{a": 10276,
		"a}b{": 6027, "{{a}}": 10276,
	} {
		require.Equal(t, slot, protocol.KeySlot(key), "%q", key)
	}
}
