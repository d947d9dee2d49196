package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestScriptWork: a node remembers the cost of expensive scripts, and forgets those that have become cheap.
func TestScriptWork(t *testing.T) {
	d := newDriver(t)
	const source = "for i = 1, ARGV[1] do end return 1"
	work := func() int64 {
		words := [][]byte{[]byte("200000")}
		n := d.m.ScriptWork([]byte(source), words)
		require.Equal(t, n, d.m.ScriptWork([]byte(strings.ToUpper(scriptSHA(source))), words))
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
	require.Zero(t, d.m.ScriptWork([]byte("return 1"), nil))

	d.do("evalsha", scriptSHA(source), "0", "10")
	require.Equal(t, most/2, work(), "one short run is no proof")
	d.read("eval_ro", source, "0", fmt.Sprint(steps))
	require.Equal(t, most/2, work(), "reads do not wait for entries")
	for range 8 {
		d.do("evalsha", scriptSHA(source), "0", "10")
	}
	require.Zero(t, work())

	d.do("eval", "while true do end", "0")
	require.NotZero(t, d.m.ScriptWork([]byte("while true do end"), nil), "it failed, and was much work")
	costs := &d.m.costs
	for i := range 2*maxCosts - 1 { // the old ones, and a new table but for one place
		costs.note(fmt.Sprint(i), MuchWork, 1)
	}
	require.LessOrEqual(t, len(costs.runs), maxCosts)
	require.Equal(t, scriptRun{MuchWork, 1}, costs.runs[fmt.Sprint(2*maxCosts-2)], "the newest stays")
	for i := 0; len(costs.runs) < maxCosts; i++ {
		costs.note(fmt.Sprint("new", i), MuchWork, 1)
	}
	costs.note(fmt.Sprint(2*maxCosts-2), MuchWork, 1)
	require.Len(t, costs.runs, maxCosts, "a known script needs no place")
}

// TestWorkOfAScriptIsByItsWords: a call of a library's script with thousands of keys does not make it expensive for the
// library's other clients.
func TestWorkOfAScriptIsByItsWords(t *testing.T) {
	d := newDriver(t)
	const acquire = `for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS`
	request := func(keys int) [][]byte {
		words := []string{"eval", acquire, fmt.Sprint(keys)}
		for i := range keys {
			words = append(words, fmt.Sprint("key", keys, i))
		}
		words = append(words, "me", "1000")
		d.do(words...)
		return protocoltest.Args(words[3:])
	}
	one := request(1)
	many := request(2000)
	require.Greater(t, d.m.ScriptWork([]byte(acquire), many), int64(MuchWork))
	require.Positive(t, d.m.ScriptWork([]byte(acquire), one))
	require.Less(t, d.m.ScriptWork([]byte(acquire), one), int64(MuchWork/16))
}
