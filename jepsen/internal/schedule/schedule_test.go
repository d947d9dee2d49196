package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/stretchr/testify/require"
)

// kinds are of three lanes; one is alone, one takes a minute.
func kinds() []Kind {
	var kinds []Kind
	for i := range 40 {
		k := Kind{
			Name: fmt.Sprintf("k%d", i), Nature: history.Nature{Group: fmt.Sprintf("g%d", i%5)}, Lane: Lane(i % 3), Min: time.Second,
			Max: 6 * time.Second,
		}
		switch i {
		case 7:
			k.Alone, k.Min, k.Max = true, 15*time.Second, 20*time.Second
		case 8:
			k.Min, k.Max = 45*time.Second, time.Minute
		case 9:
			k.Min, k.Max = 0, 0
		case 10:
			k.Draw = func(rng *rand.Rand, s *Step) { s.Size = 5 + rng.Int64N(30) }
		}
		kinds = append(kinds, k)
	}
	return kinds
}

func TestSameSeedSameSchedule(t *testing.T) {
	o := Options{Seed: 7, Nodes: 5, Time: 5 * time.Minute, Faults: kinds()}
	require.Equal(t, Generate(o), Generate(o))
	other := o
	other.Seed = 8
	require.NotEqual(t, Generate(o), Generate(other))
}

func TestScheduleKeepsItsBounds(t *testing.T) {
	drawn := map[string]bool{}
	for seed := range uint64(200) {
		o := Options{Seed: seed, Nodes: 3, Time: 4 * time.Minute, Faults: kinds()}
		steps := Generate(o)
		require.NotEmpty(t, steps)
		busy, exclusive := map[Lane]time.Duration{}, time.Duration(0)
		for _, s := range steps {
			k := o.Faults[slices.IndexFunc(o.Faults, func(k Kind) bool { return k.Name == s.Fault })]
			drawn[s.Fault] = true
			require.GreaterOrEqual(t, s.At, quiet)
			require.LessOrEqual(t, s.At+s.For, o.Time-quiet)
			require.GreaterOrEqual(t, s.At, busy[k.Lane], "two faults of one lane overlap")
			require.GreaterOrEqual(t, s.At, exclusive, "an exclusive fault overlaps another")
			if k.Alone {
				for _, until := range busy {
					require.GreaterOrEqual(t, s.At, until, "an exclusive fault overlaps another")
				}
				exclusive = s.At + s.For
			}
			busy[k.Lane] = s.At + s.For
			order := slices.Clone(s.Order)
			slices.Sort(order)
			require.Equal(t, []int{0, 1, 2}, order)
		}
	}
	require.Len(t, drawn, len(kinds()), "every fault is drawn by some seed")
}

func TestEightMinutesHaveEveryKind(t *testing.T) {
	for seed := range uint64(300) {
		drawn := map[string]bool{}
		for _, s := range Generate(Options{Seed: seed, Nodes: 3, Time: 8 * time.Minute, Faults: kinds()}) {
			drawn[s.Fault] = true
		}
		require.Len(t, drawn, len(kinds()), "seed %d", seed)
	}
}

func TestLongFaultsAreForLongRuns(t *testing.T) {
	long := Kind{Name: "long", Min: 30 * time.Second, Max: 40 * time.Second}
	short := Kind{Name: "short", Min: time.Second, Max: 2 * time.Second}
	drawn := func(run time.Duration, kinds ...Kind) map[string]bool {
		names := map[string]bool{}
		for _, s := range Generate(Options{Seed: 1, Nodes: 3, Time: run, Faults: kinds}) {
			names[s.Fault] = true
		}
		return names
	}
	require.Equal(t, map[string]bool{"short": true}, drawn(time.Minute, long, short))
	require.Equal(t, map[string]bool{"long": true, "short": true}, drawn(5*time.Minute, long, short))
	require.Equal(t, map[string]bool{"long": true}, drawn(time.Minute, long), "nothing else was asked for")
}

func TestSelect(t *testing.T) {
	kinds := []Kind{
		{Name: "kill-leader", Nature: history.Nature{Group: "kill"}},
		{Name: "kill-all", Nature: history.Nature{Group: "kill"}},
		{Name: "pause-leader", Nature: history.Nature{Group: "pause"}},
		{Name: "clock-jump", Nature: history.Nature{Group: "clock"}},
		{Name: "hostile-scripts", Nature: history.Nature{Group: Hostile}},
	}
	supported := []string{"kill-leader", "kill-all", "pause-leader", "hostile-scripts"}
	cases := []struct {
		list string
		want []string
	}{
		{"none", nil},
		{"kill", []string{"kill-leader", "kill-all"}},
		{"mixed", []string{"kill-leader", "kill-all", "pause-leader"}},
		{"all", supported},
		{"mixed,hostile", supported},
		{"pause-leader,kill", []string{"pause-leader", "kill-leader", "kill-all"}},
		{"clock", nil},
	}
	for _, c := range cases {
		got, err := Select(kinds, c.list, supported)
		require.NoError(t, err)
		require.Len(t, got, len(c.want), c.list)
		for _, name := range c.want {
			require.True(t, Has(got, name), "%s: %s", c.list, name)
		}
	}
	_, err := Select(kinds, "clock-jump", supported)
	require.ErrorContains(t, err, "not possible")
	_, err = Select(kinds, "rain", supported)
	require.ErrorContains(t, err, `no nemesis "rain"`)
}

func TestNothingToDrawFromIsNoSchedule(t *testing.T) {
	require.Empty(t, Generate(Options{Seed: 1, Nodes: 3, Time: time.Minute}))
}
