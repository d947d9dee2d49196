package members

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnIDTellsTheNameAndIsNeverMintedTwice(t *testing.T) {
	a, b := NewID("n1"), NewID("n1")
	require.Regexp(t, regexp.MustCompile(`^n1@[0-9a-f]{12}$`), a)
	require.NotEqual(t, a, b)
	require.Equal(t, "n1", Name(a))
	require.Equal(t, "n1", Name("n1"), "an ID without a mark")
}

func TestConfiguration(t *testing.T) {
	c := NewConfiguration(7, Member{"n2@b", "h2:1", true}, Member{"n3@c", "h3:1", false}, Member{"n1@a", "h1:1", true})
	require.Equal(t, "n1@a", c.Members[0].ID, "sorted")
	require.Equal(t, 2, c.Voters())
	require.Equal(t, 2, c.Quorum())
	require.True(t, c.IsVoter("n2@b"))
	require.False(t, c.IsVoter("n3@c"), "no vote")
	require.False(t, c.IsVoter("n2"), "a name is no ID")
	require.True(t, c.Has("n3@c"))
	m, ok := c.Named("n3")
	require.True(t, ok)
	require.Equal(t, Member{"n3@c", "h3:1", false}, m)
	m, ok = c.At("h2:1")
	require.True(t, ok)
	require.Equal(t, "n2", m.Name())
	_, ok = c.Named("n4")
	require.False(t, ok)
	require.True(t, c.Same(NewConfiguration(9, c.Members...)))
	require.False(t, c.Same(NewConfiguration(7, c.Members[1:]...)))
}

func TestQuorum(t *testing.T) {
	c := Configuration{}
	for i, want := range []int{1, 2, 2, 3, 3} {
		c.Members = append(c.Members, Member{ID: fmt.Sprint(i), Voter: true})
		require.Equal(t, want, c.Quorum(), "%d voters", i+1)
	}
}

func TestHintIsGoodUntilTheConfigurationGivesAnotherAddress(t *testing.T) {
	b := &Addresses{}
	require.Empty(t, b.Addr("a"))
	b.Hint("a", "new:1")
	require.Equal(t, "new:1", b.Addr("a"), "not a member yet")
	b.SetConfiguration(NewConfiguration(1, Member{"a", "old:1", true}, Member{"b", "b:1", true}))
	require.Equal(t, "new:1", b.Addr("a"), "the first configuration is not newer than the hint")
	require.Equal(t, "b:1", b.Addr("b"))
	b.SetConfiguration(NewConfiguration(2, Member{"a", "old:1", true}, Member{"b", "b:2", true}))
	require.Equal(t, "new:1", b.Addr("a"), "another member moved")
	require.Equal(t, "b:2", b.Addr("b"))
	b.SetConfiguration(NewConfiguration(3, Member{"a", "newest:1", true}))
	require.Equal(t, "newest:1", b.Addr("a"))
	require.Equal(t, "b:2", b.Addr("b"), "not a member any more, and still to be told")
	b.SetConfiguration(NewConfiguration(4, Member{"a", "newest:1", true}))
	require.Empty(t, b.Addr("b"))
}

func TestARemovedMembersHintGoes(t *testing.T) {
	b := &Addresses{}
	b.SetConfiguration(NewConfiguration(1, Member{"a", "a:1", true}, Member{"b", "b:1", true}))
	b.Hint("b", "b:2")
	b.SetConfiguration(NewConfiguration(2, Member{"a", "a:1", true}))
	require.Equal(t, "b:2", b.Addr("b"))
	b.SetConfiguration(NewConfiguration(2, Member{"a", "a:1", true}))
	require.Equal(t, "b:2", b.Addr("b"), "the same configuration")
	b.SetConfiguration(NewConfiguration(3, Member{"a", "a:1", true}))
	require.Empty(t, b.Addr("b"))
	b.SetConfiguration(NewConfiguration(4, Member{"a", "a:1", true}, Member{"b", "b:3", true}))
	require.Equal(t, "b:3", b.Addr("b"))
}

func TestHintsOfStrangersAreBounded(t *testing.T) {
	b := &Addresses{}
	b.SetConfiguration(NewConfiguration(1, Member{"a", "a:1", true}))
	for i := range 2 * maxHints {
		b.Hint(fmt.Sprint(i), "x:1")
	}
	b.Hint("a", "a:2")
	require.Equal(t, "a:2", b.Addr("a"), "a member's hint is always taken")
	require.Len(t, b.hints, maxHints+1)
	b.Hint("0", "x:2")
	require.Equal(t, "x:2", b.Addr("0"), "known already")
}
