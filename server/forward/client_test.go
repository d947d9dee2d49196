package forward

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A session that is ready when its leader is not followed any more takes nothing.
func TestLateSessionIsNotAttached(t *testing.T) {
	writes := newWaiting(0)
	c := NewClient(ClientConfig{Writes: writes, Reads: newWaiting(0)})
	c.Follow("n2")
	require.True(t, c.attach(&connection{leader: "n2"}))
	c.Follow("")
	require.False(t, c.attach(&connection{leader: "n2"}))
	require.Nil(t, c.conn)
	require.Nil(t, writes.consumer)
	c.Follow("n3")
	require.False(t, c.attach(&connection{leader: "n2"}))
}
