package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// TestHolds shows that Holds returns who held a lock, and from when until when.
func TestHolds(t *testing.T) {
	line := func(second int64, index uint64, what, owner string, fence int64) Line {
		return Line{
			Time: time.Unix(second, 0).UTC(), Cluster: "c", Index: index, Event: what, Kind: "native", Key: "k", Owner: owner,
			Fence: fence, Client: "n1/" + owner,
		}
	}
	before := line(10, 1, event.LockReleased, "early", 1)
	before.HeldMillis = 4000
	moved := line(22, 5, event.LockRenewed, "a", 2)
	moved.Client, moved.Session, moved.Note = "n2/9", 4, "job"
	left := line(25, 5, event.LockWaitEnded, "b", 0)
	left.N, left.WaitedMillis, left.Reason = 1, 3000, "timeout"
	lost := line(30, 6, event.LockTaken, "a", 2)
	lost.HeldMillis = 10_000
	lost.Reason, lost.Command, lost.By, lost.Text = "broken", "lock.break", "op 10.0.0.9:1", "stuck"
	trail := Trail{Lines: []Line{
		before, line(20, 4, event.LockGranted, "a", 2), moved, left, lost,
		line(31, 7, event.LockGranted, "b", 3), line(40, 8, event.LockGranted, "b", 4),
		{Run: 1, Event: Started, Time: time.Unix(50, 0)},
	}}
	var got []string
	for _, h := range trail.Holds() {
		got = append(got, fmt.Sprint(h.Owner, h.Fence, h.SinceUnixMillis/1000, h.EndedUnixMillis/1000, h.Ended, h.Reason,
			h.Client, h.Session, h.By, h.Note))
	}
	require.Equal(t, []string{
		fmt.Sprint("early", 1, 6, 10, "released", "", "n1/early", 0, "", ""),
		fmt.Sprint("a", 2, 20, 30, "lost", "broken", "n2/9", 4, "op 10.0.0.9:1", "job"),
		fmt.Sprint("b", 3, 31, 40, EndMissing, "", "n1/b", 0, "", ""),
		fmt.Sprint("b", 4, 40, 0, "", "", "n1/b", 0, "", ""),
	}, got)
	held := func(second int64) (owners []string) {
		for _, h := range trail.Holds() {
			if h.At(second * 1000) {
				owners = append(owners, h.Owner)
			}
		}
		return owners
	}
	require.Equal(t, []string{"early"}, held(6))
	require.Empty(t, held(15))
	require.Equal(t, []string{"a"}, held(30))
	require.Equal(t, []string{"b"}, held(99))
}

// trailOfNodes reads the files of nodes. A line is `second cluster index event key owner`, followed by further fields
// as JSON.
func trailOfNodes(t *testing.T, nodes ...string) *Trail {
	t.Helper()
	var from []io.Reader
	for _, text := range nodes {
		var file strings.Builder
		for line := range strings.Lines(text) {
			var second, index int64
			var cluster, what, key, owner string
			short, more, _ := strings.Cut(strings.TrimSpace(line), " {")
			n, _ := fmt.Sscan(short, &second, &cluster, &index, &what, &key, &owner)
			require.GreaterOrEqual(t, n, 4, line)
			l := Line{
				Time: time.Unix(second, 0).UTC(), Cluster: cluster, Index: uint64(index), Event: what, Key: key, Owner: owner,
				Kind: "stock",
			}
			if more != "" {
				require.NoError(t, json.Unmarshal([]byte("{"+more), &l))
			}
			encoded, err := json.Marshal(l)
			require.NoError(t, err)
			file.Write(append(encoded, '\n'))
		}
		from = append(from, strings.NewReader(file.String()))
	}
	trail, err := Read(from, func(*Line) bool { return true })
	require.NoError(t, err)
	return &trail
}

// TestHoldsOfPartialFiles shows that lines that are missing in the files make holds uncertain, and that no hold is
// reported to continue beside another one that excludes it.
func TestHoldsOfPartialFiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []string
		want  []string
	}{
		{
			"whole",
			[]string{"1 c 1 granted k a\n 5 c 2 released k a {\"heldMillis\":4000}\n" +
				"6 c 3 granted k b"},
			[]string{"c k a 1-5 released", "c k b 6-0"},
		},
		{
			"end missing",
			[]string{"1 c 1 granted k a\n 3 c 2 granted k b"},
			[]string{"c k a 1-3 end not in the files: end not in the files", "c k b 3-0"},
		},
		{
			"shared after exclusive",
			[]string{"1 c 1 granted k a\n 3 c 2 granted k b {\"shared\":true}"},
			[]string{"c k a 1-3 end not in the files: end not in the files", "c k b 3-0"},
		},
		{
			"shared",
			[]string{"1 c 1 granted k a {\"shared\":true}\n 3 c 2 granted k b {\"shared\":true}"},
			[]string{"c k a 1-0", "c k b 3-0"},
		},
		{
			"two clusters",
			[]string{
				"1 A 5 granted k a\n 5 A 6 released k a {\"heldMillis\":4000}",
				"3 B 5 granted k a\n 4 B 6 released k a {\"heldMillis\":1000}",
			},
			[]string{"A k a 1-5 released", "B k a 3-4 released"},
		},
		{
			"another cluster begun",
			[]string{
				"1 A 5 granted k a\n 2 A 6 granted x a",
				"9 B 0 cluster-begun {\"run\":1,\"oldCluster\":\"A\"}\n 12 B 9 released k a {\"heldMillis\":11000}",
			},
			[]string{"A k a 1-12 released", "A x a 2-0"},
		},
		{
			"clock set back",
			[]string{"4000 c 1 granted k a\n 500 c 2 released k a {\"heldMillis\":100000}"},
			[]string{"c k a 400-500 released: the clock was corrected"},
		},
		{
			"clock set back by a moment",
			[]string{"10 c 1 granted k a\n 10 c 2 released k a {\"time\":\"1970-01-01T00:00:09.500Z\"}"},
			[]string{"c k a 9-9 released: the clock was corrected"},
		},
		{
			"clock set forth",
			[]string{"100 c 1 granted k a\n 900 c 2 lost k a {\"heldMillis\":50000}"},
			[]string{"c k a 850-900 lost: the clock was corrected"},
		},
		{
			"dropped",
			[]string{"1 c 1 granted k a\n 3 c 0 dropped {\"run\":1}\n 9 c 7 granted x b"},
			[]string{"c k a 1-0: lines are missing since", "c x b 9-0"},
		},
		{"restored, and another node has the lines", []string{
			"1 c 1 granted k a\n 3 c 4 restored {\"run\":1}\n 9 c 7 granted x b",
			"1 c 1 granted k a\n 9 c 7 granted x b",
		}, []string{"c k a 1-0", "c x b 9-0"}},
		{
			"flushed",
			[]string{"1 c 1 granted k a\n 1 c 2 granted n a {\"kind\":\"native\"}\n" +
				"1 c 3 granted d a {\"db\":1}\n 4 c 9 flushed {\"command\":\"flushdb\"}"},
			[]string{"c k a 1-4 lost", "c n a 1-0", "c d a 1-0"},
		},
		{
			"flushed in another cluster",
			[]string{
				"1 A 5 granted k a",
				"9 B 0 cluster-begun {\"run\":1,\"oldCluster\":\"A\"}\n 12 B 9 flushed",
			},
			[]string{"A k a 1-12 lost"},
		},
		{
			"swapped",
			[]string{"1 c 1 granted k a\n 2 c 2 granted k b {\"db\":3}\n" +
				"2 c 3 granted o a {\"db\":1}\n 5 c 4 swapped {\"db\":3}\n 7 c 5 released k b {\"heldMillis\":5000}\n" +
				"9 c 6 released k a {\"db\":3,\"heldMillis\":8000}"},
			[]string{"c k a 1-5 swapped", "c k b 2-5 swapped", "c o a 2-0", "c k a 5-9 released", "c k b 5-7 released"},
		},
		{
			"many owners at once",
			[]string{"1 c 1 granted k a {\"shared\":true}\n" +
				"2 c 2 granted k b {\"heldMillis\":1000,\"shared\":true}\n 2 c 3 granted x b\n" +
				"5 c 9 lost k {\"count\":3,\"heldMillis\":4000}"},
			[]string{"c k a 1-5 lost", "c k b 2-5 lost", "c x b 2-0"},
		},
		{
			"a key older than its lease",
			[]string{"9 c 1 granted k a {\"heldMillis\":5000}\n 11 c 2 released k a {\"heldMillis\":7000}"},
			[]string{"c k a 9-11 released"},
		},
		{
			"restored to a state that the file has",
			[]string{"1 c 4 granted k a\n 3 c 4 restored {\"run\":1}\n 9 c 7 granted x b"},
			[]string{"c k a 1-0", "c x b 9-0"},
		},
		{
			"restored in another cluster",
			[]string{"1 c 4 granted k a\n 3 d 4 restored {\"run\":1}\n 9 c 7 granted x b"},
			[]string{"c k a 1-0: lines are missing since", "c x b 9-0"},
		},
		{
			"granted again under another fence",
			[]string{"1 c 1 granted k a {\"fence\":1}\n 3 c 2 renewed k a {\"fence\":2,\"heldMillis\":2000}\n" +
				"7 c 3 released k a {\"fence\":2,\"heldMillis\":6000}"},
			[]string{"c k a 1-3 renewed", "c k a 3-7 released"},
		},
		{
			"shared since a downgrade",
			[]string{"1 c 1 granted k a\n 3 c 2 renewed k a {\"shared\":true}\n 5 c 3 granted k b {\"shared\":true}\n" +
				"7 c 4 released k a {\"heldMillis\":6000}\n 8 c 5 released k b {\"heldMillis\":3000}"},
			[]string{"c k a 1-7 released", "c k b 5-8 released"},
		},
		{
			"renewed alone",
			[]string{"4 c 9 renewed k a {\"heldMillis\":3000}"},
			[]string{"c k a 1-0: lines are missing since"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, h := range trailOfNodes(t, c.nodes...).Holds() {
				text := strings.TrimSpace(fmt.Sprintf("%s %s %s %d-%d %s", h.Cluster, h.Key, h.Owner, h.SinceUnixMillis/1000,
					h.EndedUnixMillis/1000, h.Ended))
				if h.Uncertain != "" {
					text += ": " + h.Uncertain
				}
				got = append(got, text)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestCovers shows that the files cover the times between the lines of a node, except those in which lines were
// dropped.
func TestCovers(t *testing.T) {
	one := "10 c 1 granted k a\n 20 c 2 released k a\n 21 c 0 dropped {\"run\":1,\"node\":\"n1\"}\n 30 c 7 granted k b\n" +
		"40 c 8 released k b\n 99 c 0 login-refused {\"run\":1,\"node\":\"n1\"}"
	trail := trailOfNodes(t, one)
	require.Equal(t, []Span{{"n1", "c", 10_000, 20_000, 1, 2, ""}, {"n1", "c", 30_000, 40_000, 7, 8, ""}}, trail.Spans)
	for second, want := range map[int64]bool{9: false, 10: true, 20: true, 25: false, 35: true, 41: false} {
		require.Equal(t, want, trail.Covers("c", allLocks, second*1000, second*1000), second)
		require.False(t, trail.Covers("d", allLocks, second*1000, second*1000), second)
	}
	require.False(t, trail.Covers("c", allLocks, 15_000, 35_000))
	other := trailOfNodes(t, one, "15 c 1 granted x a\n 33 c 9 released x a")
	require.True(t, other.Covers("c", allLocks, 10_000, 40_000))
	back := trailOfNodes(t, "10 c 1 granted k a\n 4000 c 2 released k a\n 3990 c 3 lost x a\n"+
		" 3980 c 4 wait-ended x b\n 30 c 5 granted k b")
	require.Len(t, back.Spans, 2, "the clock went back")
	early := trailOfNodes(t, "5 c 9 lost k a\n 30 c 10 granted k b\n 40 c 11 released k b")
	require.Equal(t, []Span{{"", "c", 30_000, 40_000, 10, 11, ""}}, early.Spans, "a lease ended long before its entry")
}

func allLocks(*Span) bool { return true }

// TestCoversByIndex shows that two files whose times overlap do not cover the entries between them.
func TestCoversByIndex(t *testing.T) {
	const one = "10 c 1 granted k a\n 20 c 50 released k a"
	for first, want := range map[int]bool{49: true, 50: false, 51: false, 90: false} {
		trail := trailOfNodes(t, one, fmt.Sprintf("18 c %d granted x a\n 40 c 99 released x a", first))
		require.Equal(t, want, trail.Covers("c", allLocks, 10_000, 40_000), first)
		require.True(t, trail.Covers("", allLocks, 18_000, 40_000))
	}
}

// TestCoversSomeLocks shows that a file covers only the locks that match the patterns of its node.
func TestCoversSomeLocks(t *testing.T) {
	started := func(locks string) string {
		return fmt.Sprintf("0 c 0 started {\"run\":1,\"text\":%q}\n", locks)
	}
	trail := trailOfNodes(t,
		"1 c 1 granted a:1 x\n"+started("--audit-locks a:* b?")+"10 c 2 granted a:2 x\n"+started("--audit-locks a:* b?")+
			"20 c 4 released a:2 x\n"+started("")+"30 c 5 granted d x\n 40 c 6 granted d y",
		started("--audit-locks c")+"20 c 3 granted c x\n 40 c 6 released c x",
	)
	var locks []string
	for _, s := range trail.Spans {
		locks = append(locks, s.Locks)
	}
	require.Equal(t, []string{"", "a:* b?", "", "c"}, locks)
	for key, want := range map[string][]bool{
		"a:3": {true, false, true}, "b1": {true, false, true}, "b": {false, false, true}, "c": {false, true, true},
	} {
		of := func(s *Span) bool { return s.Has(key) }
		for i, second := range []int64{15, 25, 35} {
			require.Equal(t, want[i], trail.Covers("c", of, second*1000, second*1000), "%s at %d", key, second)
		}
	}
	held := trail.Holds()
	require.Equal(t, []string{"a:1", LinesMissing}, []string{held[0].Key, held[0].Uncertain})

	trail = trailOfNodes(t,
		started("--audit-locks a:*")+"10 c 5 granted a:1 x\n 11 c 0 dropped {\"run\":1}\n",
		started("--audit-locks c")+"5 c 4 granted c y\n 40 c 9 released c y")
	held = trail.Holds()
	require.Equal(t, []string{"a:1", LinesMissing}, []string{held[1].Key, held[1].Uncertain})

	long := cut(auditLocks + strings.Repeat("x ", 400) + strings.Repeat("y", 1000))
	cutOff := trailOfNodes(t, started(long)+"10 c 2 granted x x")
	require.NotContains(t, cutOff.Spans[0].Locks, "y", "what may be the half of a pattern")
}

// TestCoversDamaged shows that a file does not cover the time around a damaged line, unless the process ended there and
// wrote the line again. Lines of other logs in the file are no damage.
func TestCoversDamaged(t *testing.T) {
	line := func(second, index int) string {
		return fmt.Sprintf(`{"time":"2026-01-01T00:00:%02dZ","cluster":"c","index":%d,"event":"granted","key":"k"}`, second,
			index) + "\n"
	}
	const torn, started = `{"time":"2026-01-01T00:00:0`, `{"time":"2026-01-01T00:00:02Z","run":1,"event":"started"}` + "\n"
	for between, spans := range map[string]int{
		torn + "\n":                             2,
		"\x00\x00\n":                            2,
		torn + "\n" + started:                   1,
		"a line of the node's log\n":            1,
		`{"level":"INFO","msg":"ready"}` + "\n": 1,
	} {
		file := strings.NewReader(line(1, 1) + between + line(3, 2))
		trail, err := Read([]io.Reader{file}, func(*Line) bool { return true })
		require.NoError(t, err)
		require.Equal(t, 1, trail.Unreadable)
		require.Len(t, trail.Spans, spans, between)
	}
}

// TestReadHostile shows that lines that are too long or malformed are counted, and that two different lines with the
// same index and number are both kept.
func TestReadHostile(t *testing.T) {
	long := `{"event":"granted","key":"` + strings.Repeat("k", 1<<20) + "\"}\n"
	good := `{"time":"2026-01-01T00:00:00Z","cluster":"c","index":1,"event":"granted","key":"k","owner":"a"}` + "\n"
	forged := strings.Replace(good, `"owner":"a"`, `"owner":"b"`, 1)
	named := strings.Replace(good, `"owner"`, `"addr":"x","owner"`, 1)
	var strange string
	for _, id := range []string{"c/1.", "c/1", "c/x.0", "c", "c/-1.0", "c/1.x", "/"} {
		strange += fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","id":%q,"event":"granted","key":"k","owner":"z"}`+"\n", id)
	}
	trail, err := Read([]io.Reader{
		strings.NewReader(long + good + long), strings.NewReader(forged), strings.NewReader(strange + forged + named),
	}, func(*Line) bool { return true })
	require.NoError(t, err)
	require.Equal(t, 2+7, trail.Unreadable)
	require.Equal(t, 1, trail.Conflicts)
	require.Len(t, trail.Lines, 2)
	require.Equal(t, "x", trail.Lines[0].Addr)
}
