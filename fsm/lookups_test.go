package fsm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// lookupLines returns the lines of testdata/lookups: the hits and misses that redis-server 7.0.15 counted, and the
// command.
func lookupLines(t *testing.T) []string {
	text, err := os.ReadFile("testdata/lookups")
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestLookups: hits and misses are counted as in Redis, in reads and in entries.
func TestLookups(t *testing.T) {
	for _, inEntries := range []bool{true, false} {
		t.Run(fmt.Sprintf("in entries %t", inEntries), func(t *testing.T) {
			d := newDriver(t)
			for _, line := range lookupLines(t) {
				if strings.HasPrefix(line, "#") {
					continue
				}
				words := protocoltest.Words(t, line)
				row, _ := protocol.Find(words[2:])
				require.NotNil(t, row, line)
				before := d.m.Stats()
				if !inEntries && !d.m.ops[row.Name].writes {
					d.read(words[2:]...)
				} else {
					d.do(words[2:]...)
				}
				after := d.m.Stats()
				got := fmt.Sprint(after.Hits-before.Hits, after.Misses-before.Misses)
				require.Equal(t, words[0]+" "+words[1], got, line)
			}
		})
	}
}

// TestDifferentialLookups: the counts of testdata/lookups are those of a real server.
func TestDifferentialLookups(t *testing.T) {
	r := startRedis(t)
	counts := func() (n [2]int) {
		for line := range strings.Lines(r.Do("info", "stats")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "keyspace_hits":
				n[0], _ = strconv.Atoi(value)
			case "keyspace_misses":
				n[1], _ = strconv.Atoi(value)
			}
		}
		return n
	}
	for _, line := range lookupLines(t) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := protocoltest.Words(t, line)
		before := counts()
		r.Do(words[2:]...)
		after := counts()
		require.Equal(t, words[0]+" "+words[1], fmt.Sprint(after[0]-before[0], after[1]-before[1]), line)
	}
}

// TestLookupsOfOthers: a node counts neither lookups of other nodes' clients nor those that it could not answer.
func TestLookupsOfOthers(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", "v", "px", "100")
	entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
	body := pipeline("get k", "eval redis.call('get','k')~redis.call('get','l') 0", "getset k w")
	entry.Add(protocol.Incarnation{Node: "n2", Epoch: 1}, 1, 1, protocol.AppendTransaction(body, 0, nil,
		pipeline("get k", "getdel k")))
	require.NoError(t, d.m.Apply(entry.Bytes(), clientless{}))
	require.Zero(t, d.m.Stats().Hits+d.m.Stats().Misses)

	d.do("set", "k", "v", "px", "100")
	d.nowMillis += 200
	_, due := d.read("get", "k")
	require.True(t, due)
	require.Zero(t, d.m.Stats().Hits+d.m.Stats().Misses, "the read is asked again")

	d.do("set", "k", "v")
	d.apply(protocol.AppendTransaction(nil, 0, nil, pipeline("get k", "mget k l m", "set k w")))
	s := d.m.Stats()
	require.Equal(t, [2]uint64{2, 2}, [2]uint64{s.Hits, s.Misses})
}
