package replicatest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
)

// errDown is what a command on a node that does not run is answered.
var errDown = &protocol.Error{Prefix: "CLUSTERDOWN", Text: "This node does not run"}

// Batch encodes commands, each a list of words, as a batch of database 0. The batch is a write if
// any command is not surely a read.
func Batch(commands ...[]string) *replica.Batch {
	u := &replica.Batch{Count: len(commands)}
	for _, words := range commands {
		words = append([]string{strings.ToLower(words[0])}, words[1:]...)
		u.Body = protocoltest.AppendRequest(u.Body, 0, words...)
		if len(commands) == 1 {
			u.Hints = protocoltest.Hints(words...)
		}
		if row, ok := protocol.Lookup(words[0]); !ok || row.Route != protocol.Read {
			u.Write = true
		}
	}
	return u
}

// Execute runs commands as a batch on the node.
func (n *Node) Execute(commands ...[]string) ([]protocol.Value, error) {
	r := n.Replica()
	if r == nil {
		return nil, errDown
	}
	u := Batch(commands...)
	if err := r.Execute(u); err != nil {
		return nil, err
	}
	return u.Replies, nil
}

// Do runs a command on the node. An error of the batch is an error reply, as for a client.
func (n *Node) Do(words ...string) protocol.Value {
	replies, err := n.Execute(words)
	if err != nil {
		var row *protocol.Error
		if errors.As(err, &row) {
			return row.Value()
		}
		return protocol.Err(err.Error())
	}
	return replies[0]
}

// Fill commits so many entries.
func (c *Cluster) Fill(entries int) {
	c.T.Helper()
	for i := range entries {
		require.Equal(c.T, protocol.OK, c.Leader().Do("SET", fmt.Sprint("k", i), "v"))
	}
}
