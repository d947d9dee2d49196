package fsm

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
)

// TestElementScansReturnEachOnce scans a hash and a set while other elements come and go and the node restarts: every
// stable element is returned once.
func TestElementScansReturnEachOnce(t *testing.T) {
	for name, add := range map[string][]string{"hscan": {"hset", "k"}, "sscan": {"sadd", "k"}} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(1))
			d := newDriver(t)
			for i := range 500 {
				words := slices.Concat(add, []string{"stays:" + strconv.Itoa(i)})
				if name == "hscan" {
					words = append(words, "v")
				}
				d.do(words...)
			}
			seen := map[string]int{}
			cursor := "0"
			for steps := 0; steps == 0 || cursor != "0"; steps++ {
				reply := d.do(name, "k", cursor, "COUNT", "7")
				require.False(t, reply.IsError(), reply.Str)
				cursor = reply.Elems[0].Str
				for _, e := range reply.Elems[1].Elems {
					seen[e.Str]++
				}
				other := fmt.Sprint("goes:", rng.Intn(300))
				if name == "hscan" {
					d.do("hset", "k", other, "v")
					d.do("hdel", "k", fmt.Sprint("goes:", rng.Intn(300)))
				} else {
					d.do("sadd", "k", other)
					d.do("srem", "k", fmt.Sprint("goes:", rng.Intn(300)))
				}
				if steps%20 == 10 {
					d.m = restored(t, d.m)
				}
			}
			for i := range 500 {
				require.Equal(t, 1, seen["stays:"+strconv.Itoa(i)], i)
			}
		})
	}
}

// TestLargeCommandsAreRefused: a command that exceeds the budget of one command fails at once, changes nothing, and
// delays no other.
func TestLargeCommandsAreRefused(t *testing.T) {
	d := newDriver(t)
	members := make([]string, 1000)
	for i := range members {
		members[i] = strconv.Itoa(i)
	}
	d.do(slices.Concat([]string{"sadd", "s", "x"}, members)...)
	d.do("sadd", "d", "old")
	times := func(word string, n int) []string { return strings.Fields(strings.Repeat(word+" ", n)) }
	for _, words := range [][]string{
		slices.Concat([]string{"sunion"}, times("s", 1000)),
		slices.Concat([]string{"sunionstore", "d"}, times("s", 1000)),
		slices.Concat([]string{"sdiff"}, times("s", 1000)),
		slices.Concat([]string{"sinter"}, times("s", 1000)),
		slices.Concat([]string{"sintercard", "1000"}, times("s", 1000)),
		slices.Concat([]string{"sort", "s", "ALPHA", "STORE", "d"}, times("GET none*", 600)),
		{"srandmember", "s", "-1000000"},
	} {
		require.Equal(t, command.ErrTooMuchWork, d.do(words...), words[0])
		if words[0] != "sunionstore" && words[0] != "sort" {
			reply, _ := d.read(words...)
			require.Equal(t, command.ErrTooMuchWork, reply, words[0])
		}
	}
	require.Equal(t, `~["old"]`, line(d.do("smembers", "d")))
	require.Equal(t, "3",
		line(d.do(slices.Concat([]string{"sintercard", "100"}, times("s", 100), []string{"LIMIT", "3"})...)),
		"a limit that is reached early costs little")
	require.Equal(t, "1001", line(d.do("sunionstore", "d", "s")))
}

// TestDrawsDiffer: random members differ between commands, cover the set, and are distinct if requested.
func TestDrawsDiffer(t *testing.T) {
	d := newDriver(t)
	for i := range 200 {
		d.do("sadd", "s", "m"+strconv.Itoa(i))
		d.do("hset", "h", "m"+strconv.Itoa(i), "v")
	}
	seen := map[string]bool{}
	for range 3000 {
		seen[d.do("srandmember", "s").Str] = true
		seen[d.do("hrandfield", "h").Str] = true
	}
	require.Len(t, seen, 200)
	for _, command := range [][]string{{"srandmember", "s", "150"}, {"hrandfield", "h", "150"}, {"spop", "s", "150"}} {
		drawn := map[string]bool{}
		for _, e := range d.do(command...).Elems {
			drawn[e.Str] = true
		}
		require.Len(t, drawn, 150, command)
	}
	require.Equal(t, "50", line(d.do("scard", "s")))
	require.Len(t, d.do("srandmember", "s", "-120").Elems, 120)
}
