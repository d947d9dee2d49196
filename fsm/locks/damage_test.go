package locks

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDamage spoils saved tables, a byte or a few at a time: a table that is loaded all the same keeps every
// promise, and comes to an end.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for seed := range uint64(30) {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 9)), table: New()}
		c.table.Slice(seed%3 > 0)
		now := int64(1000)
		for range 60 {
			now += c.r.Int64N(20)
			c.table.Begin(now, c.r.IntN(20)*c.table.price())
			c.step()
		}
		good := saved(c.table)
		for range 300 {
			b := append([]byte{}, good...)
			for range 1 + r.IntN(2) {
				switch i := r.IntN(len(b)); r.IntN(3) {
				case 0:
					b[i] ^= 1 << r.IntN(8)
				case 1:
					b[i] = byte(r.IntN(4))
				default:
					b = append(b[:i], b[min(len(b), i+1):]...)
				}
			}
			table, err := loaded(b, c.table.sliced)
			if err != nil {
				continue
			}
			accepted++
			table.Begin(now, plenty)
			require.NoError(t, table.verify(false))
			exhaust(t, table)
		}
	}
	require.Positive(t, accepted)
}

// exhaust lets all that is due happen, whatever its deadline.
func exhaust(t *testing.T, table *Table) {
	for n := 0; ; n++ {
		require.Less(t, n, 5000, "something is due for ever")
		due, ok := table.NextDue()
		if !ok {
			checkAll(t, table)
			return
		}
		table.Begin(max(table.now, due), plenty)
		table.Sweep()
		require.NoError(t, table.verify(false))
	}
}
