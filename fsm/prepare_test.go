package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// sourceOf returns a source of a length, different for each number.
func sourceOf(number, length int) string {
	head := fmt.Sprintf("return %d --", number)
	return head + strings.Repeat("x", length-len(head))
}

// TestPrepared: what an entry may compile within its budget is compiled before it is applied, and not again.
func TestPrepared(t *testing.T) {
	const large, half = LargeSource, (1 << 26) / compileWork / 2
	for name, c := range map[string]struct {
		bodies [][]byte
		want   string // the numbers of the sources compiled in advance
		not    string
	}{
		"eval, load": {[][]byte{
			pipeline("set a 1"), request(nil, 0, "eval", sourceOf(1, large), "0"),
			request(nil, 0, "script", "load", sourceOf(2, large)),
		}, "12", ""},
		"exec": {[][]byte{protocol.AppendTransaction(nil, 0, nil, request(pipeline("set a 1"), 0, "eval",
			sourceOf(1, large), "0"))}, "1", ""},
		"small": {[][]byte{
			request(nil, 0, "eval", sourceOf(1, large-1), "0"),
			request(nil, 0, "eval", sourceOf(2, large), "0"),
		}, "2", "1"},
		"too much": {[][]byte{request(nil, 0, "eval", sourceOf(1, half), "0"), request(nil, 0, "eval", sourceOf(2, half+1),
			"0"), request(nil, 0, "eval", sourceOf(3, half), "0")}, "13", "2"},
		"one": {[][]byte{
			request(nil, 0, "eval", sourceOf(1, 3*half), "0"),
			request(nil, 0, "eval", sourceOf(2, large), "0"),
		}, "1", "2"},
		"corrupt": {[][]byte{append(request(nil, 0, "eval", sourceOf(1, large), "0"), 200, 1, 4)}, "1", ""},
	} {
		d, m := newDriver(t), newMachine()
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		for i, body := range c.bodies {
			w.Add(origin, uint64(i+1), uint64(i+1), body)
		}
		length := map[string]int{
			"small 1": large - 1, "too much 1": half, "too much 2": half + 1, "too much 3": half,
			"one 1": 3 * half,
		}
		source := func(number rune) string {
			n := int(number - '0')
			at := fmt.Sprint(name, " ", n)
			if length[at] == 0 {
				length[at] = large
			}
			return sourceOf(n, length[at])
		}
		d.m.Prepare(w.Bytes())
		programs := map[rune]*lua.Program{}
		for _, n := range c.want {
			require.True(t, d.m.programs.Has(source(n)), name)
			programs[n], _ = d.m.programs.Compile(source(n))
		}
		for _, n := range c.not {
			require.False(t, d.m.programs.Has(source(n)), name)
		}
		require.Equal(t, fmt.Sprint(m.Apply(w.Bytes(), clientless{})), fmt.Sprint(d.m.Apply(w.Bytes(), clientless{})))
		require.Equal(t, m.Hash(), d.m.Hash(), "to prepare changes nothing")
		for n, program := range programs { // unordered: checks each
			if s := d.m.st.scripts.find(scriptSHA(source(n))); s != nil {
				require.Same(t, program, s.program, name)
			}
		}
	}
	newMachine().Prepare([]byte(strings.Repeat("\x04eval", LargeSource)))
}

// TestKnownSourcesAreNotCompiled: a source in the state is already compiled.
func TestKnownSourcesAreNotCompiled(t *testing.T) {
	d := newDriver(t)
	source, body := sourceOf(1, LargeSource), request(nil, 0, "eval", sourceOf(1, LargeSource), "0")
	require.False(t, d.m.Compiled(source))
	d.m.PrepareBatch(body)
	require.True(t, d.m.Compiled(source))
	require.Equal(t, "[1]", lines(d.apply(body)))
	for range 2 {
		d.m = restored(t, d.m) // has compiled nothing itself
		require.True(t, d.m.Compiled(source))
		require.NoError(t, d.m.Compile(source))
		d.m.PrepareBatch(body)
		require.False(t, d.m.programs.Has(source))
	}
	d.do("script", "flush")
	require.False(t, d.m.Compiled(source))
	require.Error(t, d.m.Compile(strings.Repeat("(", LargeSource)))
}

// TestReadsArePrepared: a read compiles without blocking entries.
func TestReadsArePrepared(t *testing.T) {
	d := newDriver(t)
	reply, _ := d.read("eval_ro", sourceOf(7, LargeSource), "0")
	require.Equal(t, "7", line(reply))
	require.True(t, d.m.programs.Has(sourceOf(7, LargeSource)))
	d.m.prepareRead(string(request(nil, 0, "eval_ro", sourceOf(8, LargeSource), "0")))
	require.True(t, d.m.programs.Has(sourceOf(8, LargeSource)))
}
