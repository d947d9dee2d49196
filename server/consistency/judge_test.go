package consistency

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// TestJudge: who is right, by the votes of all voters, not of those that answered.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ voters, others, hashes, right, differ string }{
		{"a b c", "", "a=1 b=1 c=1", "1", ""},
		{"a b c", "", "a=1 b=1 c=2", "1", "c"},
		{"a b c", "", "a=2 b=1 c=1", "1", "a"},
		{"a b c", "", "a=1 b=1", "1", ""},
		{"a b c", "", "a=1 b=2", "", "a b"},
		{"a b c", "", "a=1", "", ""},
		{"a b c", "", "a=1 b=2 c=3", "", "a b c"},
		{"a b", "", "a=1 b=1", "1", ""},
		{"a b", "", "a=1 b=2", "", "a b"},
		{"a b c d", "", "a=1 b=1 c=2 d=2", "", "a b c d"},
		{"a b c d", "", "a=1 b=1 c=1 d=2", "1", "d"},
		{"a b c d e", "", "a=1 b=1 c=2", "", "a b c"},
		{"a b c d e", "", "a=1 b=1 c=2 d=1 e=3", "1", "c e"},
		{"a b c", "d", "a=1 b=1 c=1 d=2", "1", "d"},
		{"a b c", "d e", "a=1 b=1 c=2 d=2 e=2", "1", "c d e"},
		{"a b c", "d e", "a=1 d=2 e=2", "", "a d e"},
		{"a", "d", "a=1 d=2", "1", "d"},
	} {
		var all []members.Member
		for _, id := range strings.Fields(c.voters) {
			all = append(all, members.Member{ID: id, Voter: true})
		}
		for _, id := range strings.Fields(c.others) {
			all = append(all, members.Member{ID: id})
		}
		hashes := make(map[string]string)
		for _, word := range strings.Fields(c.hashes) {
			id, hash, _ := strings.Cut(word, "=")
			hashes[id] = hash
		}
		right, differ := judge(members.NewConfiguration(1, all...), hashes)
		require.Equal(t, c.right, right, c)
		require.Equal(t, c.differ, strings.Join(differ, " "), c)
	}
}
