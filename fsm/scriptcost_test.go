package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScriptWork: a node remembers what scripts cost that are much work, and forgets what has become little.
func TestScriptWork(t *testing.T) {
	d := newDriver(t)
	const source = "for i = 1, ARGV[1] do end return 1"
	work := func() int64 {
		n := d.m.ScriptWork([]byte(source))
		require.Equal(t, n, d.m.ScriptWork([]byte(strings.ToUpper(scriptSHA(source)))))
		return n
	}
	require.Zero(t, work(), "it never ran")
	d.do("eval", source, "0", "10")
	require.Zero(t, work())
	const steps = 200_000
	d.do("eval", source, "0", fmt.Sprint(steps))
	most := work()
	require.Greater(t, most, int64(steps*luaStepWork))
	require.Less(t, most, int64(4*steps*luaStepWork))
	require.Zero(t, d.m.ScriptWork([]byte("return 1")))

	d.do("evalsha", scriptSHA(source), "0", "10")
	require.Equal(t, most/2, work(), "one short run is no proof")
	d.read("eval_ro", source, "0", fmt.Sprint(steps))
	require.Equal(t, most/2, work(), "reads do not wait for entries")
	for range 8 {
		d.do("evalsha", scriptSHA(source), "0", "10")
	}
	require.Zero(t, work())

	d.do("eval", "while true do end", "0")
	require.NotZero(t, d.m.ScriptWork([]byte("while true do end")), "it failed, and was much work")
	costs := &d.m.costs
	for i := range maxCosts {
		costs.note(fmt.Sprint(i), MuchWork)
	}
	require.LessOrEqual(t, len(costs.work), maxCosts)
	require.Equal(t, int64(MuchWork), costs.work[fmt.Sprint(maxCosts-1)], "the newest stays")
}
