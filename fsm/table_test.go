package fsm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestEveryRowIsBoundOnce walks the table: what is routed to the state machine
// is bound exactly once, and nothing is bound that has no row.
func TestEveryRowIsBoundOnce(t *testing.T) {
	bound := map[string]int{}
	for _, room := range rooms {
		for name := range room {
			bound[name]++
		}
	}
	for _, family := range families {
		for name := range family {
			bound[name]++
		}
	}
	var walk func(rows []protocol.Command)
	walk = func(rows []protocol.Command) {
		for i := range rows {
			row := &rows[i]
			walk(row.Subcommands)
			_, asLocal := scriptLocals[row.Name]
			switch {
			case row.Route != protocol.Local:
				require.Equal(t, 1, bound[row.Name], "bind %q in its type's table Ops, or in fsm/ops.go", row.Name)
				require.False(t, asLocal, "%q is no local command: bind it elsewhere in fsm/ops.go", row.Name)
			case asLocal:
				require.False(t, row.Has(protocol.FlagNoScript), "scripts may not call %q", row.Name)
			default:
				require.Zero(t, bound[row.Name], "%q is answered by package server: take it out of fsm/ops.go", row.Name)
			}
			delete(bound, row.Name)
		}
	}
	walk(protocol.Commands())
	require.Empty(t, bound, "bindings without a row in protocol's table")
}

// TestRowsWriteAsTheyAreRouted: a read that wrote would make replicas differ.
func TestRowsWriteAsTheyAreRouted(t *testing.T) {
	for name, b := range newMachine().ops {
		if _, message := messageOps[name]; message {
			require.True(t, b.writes, name)
			continue
		}
		if _, read := lockReads[name]; read {
			require.False(t, b.writes, name)
			require.Nil(t, b.row, name)
			continue
		}
		if b.row == nil {
			require.Contains(t, []string{"exec", "block", "drop", "notify", "unblock", "native", "alive", "gone", "giveback"},
				name)
			require.True(t, b.writes, name)
			continue
		}
		require.Equal(t, b.row.Has(protocol.FlagWrite), b.row.Route == protocol.Write && !strings.HasPrefix(name, "script|"),
			name)
	}
}

// TestReadsWriteNothing runs all rows of the Read route over a full database.
func TestReadsWriteNothing(t *testing.T) {
	d := newDriver(t)
	for _, key := range generatedKeys {
		d.do("set", key, "1", "PX", "100000")
	}
	want := dump(t, d.m)
	g := newGenerator(1, "")
	for range 5000 {
		words := g.next()
		row, _ := protocol.Find(words)
		if row == nil || row.Route != protocol.Read && !row.Has(protocol.FlagReadOnly) {
			continue
		}
		d.read(words...)
		require.Equal(t, want, dump(t, d.m), quote(words))
	}
}

// Requests that decode and make no sense get an error, and never panic.
func TestStrangeRequests(t *testing.T) {
	d := newDriver(t)
	for _, words := range [][]string{
		{""},
		{"nosuch"},
		{"nosuch", "a\r\nb", strings.Repeat("x", 1000)},
		{"get"},
		{"get", "a", "b"},
		{"set", "a"},
		{"script"},
		{"script|load"},
		{"object|encoding"},
		{"hello", "3"},
		{"exec"},
		{"exec", "\xff", ""},
		{"exec", "", "\xff"},
		{"exec", "\x00", ""},
		{"exec", "", string(protocol.AppendTransaction(nil, 0, nil, nil))},
		{"mset", "a"},
		{"eval", "return 1"},
	} {
		body := protocoltest.AppendRequest(nil, 3, words...)
		replies := d.apply(body)
		require.Len(t, replies, 1)
		text := line(replies[0])
		require.Contains(t, text, "ERR", "%q", words)
		require.NotContains(t, replies[0].Str, "\n")
	}
}
