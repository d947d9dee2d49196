package collection

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// Gathering collects members with scores, and becomes a sorted set at once. For many members that is much faster than
// one change after another.
type Gathering struct{ members []named }

// Add adds a member. The gathering shares the memory of member.
func (g *Gathering) Add(member string, score float64) {
	g.members = append(g.members, named{member: member, score: score})
}

// Len returns the number of members.
func (g *Gathering) Len() int { return len(g.members) }

// Merge combines the scores of equal members with together, in the order in which they were added.
func (g *Gathering) Merge(together func(a, b float64) float64) {
	g.hash()
	slices.SortStableFunc(g.members, compareNamed)
	merged := g.members[:0]
	for _, m := range g.members {
		if last := len(merged) - 1; last >= 0 && merged[last].member == m.member {
			merged[last].score = together(merged[last].score, m.score)
			continue
		}
		merged = append(merged, m)
	}
	g.members = merged
}

func (g *Gathering) hash() {
	for i := range g.members {
		g.members[i].hash = orderOf(g.members[i].member)
	}
}

func compareNamed(a, b named) int {
	if a.hash != b.hash {
		return cmp.Compare(a.hash, b.hash)
	}
	return strings.Compare(a.member, b.member)
}

func compareScored(a, b named) int {
	switch {
	case a.score < b.score:
		return -1
	case a.score > b.score:
		return 1
	}
	return strings.Compare(a.member, b.member)
}

// Sort sorts the members as in a sorted set. Requires: no two members are equal.
func (g *Gathering) Sort() { slices.SortFunc(g.members, compareScored) }

// All calls f with the members.
func (g *Gathering) All(f func(member string, score float64)) {
	for i := range g.members {
		f(g.members[i].member, g.members[i].score)
	}
}

// SortedSet returns a sorted set of the members: a small one if they are few and short. It shares no memory with the
// gathering. Requires: no two members are equal.
func (g *Gathering) SortedSet() *SortedSet {
	z := NewSortedSet()
	tooLong := func(m named) bool { return len(m.member) > maxPackedWord }
	if len(g.members) <= maxPacked && !slices.ContainsFunc(g.members, tooLong) {
		for i := range g.members {
			z.Put(g.members[i].member, g.members[i].score)
		}
		return z
	}
	z.enlarge()
	for i := range g.members {
		g.members[i].member = strings.Clone(g.members[i].member)
		z.text += int64(len(g.members[i].member))
	}
	z.count = len(g.members)
	g.hash()
	slices.SortFunc(g.members, compareNamed)
	for i := range g.members {
		z.byName.Load(g.members[i])
	}
	g.Sort()
	z.byScore = btree.NewBTreeGOptions(beforeScored, btree.Options{NoLocks: true})
	for i := range g.members {
		z.byScore.Load(scored{g.members[i].score, g.members[i].member})
	}
	return z
}
