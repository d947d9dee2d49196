package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func all() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}

func TestSameSeedSameSchedule(t *testing.T) {
	o := Options{Seed: 7, Nodes: 5, Time: 5 * time.Minute, Faults: all()}
	require.Equal(t, Generate(o), Generate(o))
	other := o
	other.Seed = 8
	require.NotEqual(t, Generate(o), Generate(other))
}

func TestScheduleKeepsItsBounds(t *testing.T) {
	drawn := map[string]bool{}
	for seed := range uint64(200) {
		o := Options{Seed: seed, Nodes: 3, Time: 2 * time.Minute, Faults: all()}
		steps := Generate(o)
		require.NotEmpty(t, steps)
		busy := map[Lane]time.Duration{}
		for _, s := range steps {
			n := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == s.Fault })
			k := kinds[n]
			drawn[s.Fault] = true
			require.GreaterOrEqual(t, s.At, quiet)
			require.LessOrEqual(t, s.At+s.For, o.Time-quiet)
			require.GreaterOrEqual(t, s.At, busy[k.Lane], "two faults of one lane overlap")
			busy[k.Lane] = s.At + s.For
			order := slices.Clone(s.Order)
			slices.Sort(order)
			require.Equal(t, []int{0, 1, 2}, order)
		}
	}
	require.Len(t, drawn, len(kinds), "every fault is drawn by some seed")
}

func TestFiveMinutesHaveEveryKind(t *testing.T) {
	for seed := range uint64(300) {
		left := all()
		for _, s := range Generate(Options{Seed: seed, Nodes: 3, Time: 5 * time.Minute, Faults: all()}) {
			left = slices.DeleteFunc(left, func(name string) bool { return name == s.Fault })
		}
		require.Empty(t, left, "seed %d", seed)
	}
}

func TestSelect(t *testing.T) {
	supported := []string{"kill-leader", "kill-all", "pause-leader"}
	cases := []struct {
		list string
		want []string
	}{
		{"none", nil},
		{"kill", []string{"kill-leader", "kill-all"}},
		{"mixed", supported},
		{"pause-leader,kill", []string{"pause-leader", "kill-leader", "kill-all"}},
		{"clock", nil},
	}
	for _, c := range cases {
		got, err := Select(c.list, supported)
		require.NoError(t, err)
		require.ElementsMatch(t, c.want, got, c.list)
	}
	_, err := Select("clock-jump", supported)
	require.ErrorContains(t, err, "not possible")
	_, err = Select("rain", supported)
	require.ErrorContains(t, err, `no nemesis "rain"`)
}

func TestNothingToDrawFromIsNoSchedule(t *testing.T) {
	require.Empty(t, Generate(Options{Seed: 1, Nodes: 3, Time: time.Minute}))
}
