package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// On whichever node a command arrives, it has the same effect and the same reply.
func TestEveryNodeServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		c.Leader()
		for _, n := range c.Nodes() {
			require.Equal(t, protocol.OK, n.Do("SET", "k", n.Name))
			for _, other := range c.Nodes() {
				require.Equal(t, protocol.Bulk(n.Name), other.Do("GET", "k"))
			}
		}
		c.Settle()
	})
}

func TestCommandsSurviveTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{})
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		start := time.Now()
		leader.Crash()
		next := c.Leader()
		require.Equal(t, protocol.Bulk("v"), next.Do("GET", "k"))
		t.Logf("served again after %v", time.Since(start))
	})
}
