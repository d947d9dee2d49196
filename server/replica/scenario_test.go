package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// inBubble runs a test of a cluster in virtual time.
func inBubble(t *testing.T, configure func(*replica.Config), test func(t *testing.T, c *replicatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, replicatest.New(t, replicatest.Options{Configure: configure}))
	})
}

// patience gives commands more time than the faults of a test take.
func patience(c *replica.Config) { c.CommandTimeout = 30 * time.Second }

// later runs a command on its own goroutine, and returns the channel of the reply.
func later(n *replicatest.Node, words ...string) <-chan protocol.Value {
	reply := make(chan protocol.Value, 1)
	go func() { reply <- n.Do(words...) }()
	return reply
}

// lead makes n the leader.
func lead(t *testing.T, c *replicatest.Cluster, n *replicatest.Node) {
	t.Helper()
	if leader := c.Leader(); leader != n {
		require.NoError(t, leader.Replica().TransferLeadership(t.Context(), n.ID))
	}
	require.Same(t, n, c.Leader(), "it does not become leader")
}

func events[E replica.Event](n *replicatest.Node) (es []E) {
	for _, e := range n.Events() {
		if e, ok := e.(E); ok {
			es = append(es, e)
		}
	}
	return es
}
