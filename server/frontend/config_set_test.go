package frontend

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestConfigGetFindsWhatWasSet: the setting is state, so a client's own write is waited for.
func TestConfigGetFindsWhatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		s := start(t, Config{}, cl)
		c := s.dial()
		do := func(words ...string) string {
			c.send(command(words...))
			settle()
			got, _ := c.take()
			return got
		}
		require.Equal(t, "+OK\r\n", do("CONFIG", "SET", "notify-keyspace-events", "KEA"))
		do("CONFIG", "GET", "maxclients")
		require.Equal(t, "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nAKE\r\n", do("CONFIG", "GET", "n*"))
		cl.set(func() { require.Equal(t, []uint64{1}, cl.awaited) })
		cl.set(func() { cl.fail = errors.New("x") })
		require.Equal(t, "-"+protocol.ErrUncertain.Error()+"\r\n", do("CONFIG", "SET", "notify-keyspace-events", "KEA"))
		s.stop()
	})
}
