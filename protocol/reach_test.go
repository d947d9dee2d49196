package protocol

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReaches: reaches names the commands that are there, each once, so no row of the table is lost. What is kept off by
// a category is in the category, and the state machine hears of what it judges.
func TestReaches(t *testing.T) {
	t.Parallel()
	rows := make(map[string]*Command)
	for _, table := range []*Table{Redis(), Sentinel()} {
		for c := range table.All() {
			rows[c.Name] = c
		}
	}
	var named []string
	for i := range reaches {
		r := &reaches[i]
		for name := range strings.FieldsSeq(r.commands) {
			named = append(named, name)
			c := rows[name]
			require.NotNil(t, c, name)
			require.Equal(t, r.Reach, *c.Reach, name)
			if r.Guard == dangerous {
				require.True(t, c.InCategory("dangerous"), name)
			}
			require.False(t, r.ByRights && c.Route == Local, "%s: the state machine does not hear of it", name)
		}
	}
	require.Len(t, named, len(rows), "a command that is there twice")
	require.Panics(t, func() { number([]Command{{Name: "new"}}, 0) })
	slices.Sort(named)
	require.Len(t, slices.Compact(named), len(rows))
}
