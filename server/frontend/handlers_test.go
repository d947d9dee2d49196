package frontend

import (
	"testing"

	"github.com/holdfast/holdfast/protocol"
	"github.com/stretchr/testify/require"
)

// TestEveryLocalRowIsBoundOnce walks the table and the handlers.
func TestEveryLocalRowIsBoundOnce(t *testing.T) {
	families := handlerFamilies()
	bound := make(map[string]int)
	for _, family := range families {
		for name, l := range family {
			bound[name]++
			row := rowNamed(name)
			require.NotNil(t, row, "%s is bound and has no row", name)
			if l.native != nil || l.acquires {
				require.True(t, l.run == nil && l.reply == nil && row.Route == protocol.Write, "%s is executed by the cluster", name)
				continue
			}
			require.NotEqual(t, l.run == nil, l.reply == nil, "%s has to have either run or reply", name)
			// WATCH reads the state, but the client's reply is made here.
			require.True(t, row.Route == protocol.Local || name == "watch", "%s is bound and its row is not Local", name)
		}
	}
	for command, row := range newRows() {
		container := len(command.Subcommands) > 0 && command.Arity == -2
		if command.Route == protocol.Local && !container {
			require.Equal(t, 1, bound[command.Name], "%s is to be bound once", command.Name)
		}
		if container {
			require.Zero(t, bound[command.Name], "%s is never run by itself", command.Name)
		}
		require.Equal(t, command.Route == protocol.Local || command.Name == "watch", row.handler.run != nil || row.handler.reply != nil || container, command.Name)
		require.False(t, row.write && command.Has(protocol.FlagReadOnly), command.Name)
		require.Equal(t, row.write, command.Route == protocol.Write || command.Name == "eval" || command.Name == "evalsha", command.Name)
	}
}

// rowNamed finds a row in the tables of all ports.
func rowNamed(name string) *protocol.Command {
	for _, table := range tables() {
		for c := range table.All() {
			if c.Name == name {
				return c
			}
		}
	}
	return nil
}
