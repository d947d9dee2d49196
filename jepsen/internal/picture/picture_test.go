package picture

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// published is the folder of the picture that the README shows.
var published = filepath.Join("..", "..", "picture")

// TestPublishedPictureIsDrawnFromItsHistories: what the README shows is what the histories beside it say.
func TestPublishedPictureIsDrawnFromItsHistories(t *testing.T) {
	p, err := Read(published)
	require.NoError(t, err)
	require.NotEmpty(t, p.Runs)
	if protocoltest.Rewriting() {
		require.NoError(t, p.Write(published))
	}
	there := protocoltest.ReadFile(t, filepath.Join(published, drawing))
	require.Equal(t, string(p.SVG()), there, "run go test ./jepsen/internal/picture -rewrite")
	require.Less(t, len(there), 60_000)
	for _, r := range p.Runs {
		_, double := bars(r.History)
		require.Equal(t, checker.Exclusion(checker.Clocks{})(r.History).Counts["double grants"], double, r.Target)
		require.NotEmpty(t, r.History.Faults, r.Target)
	}
	readme := protocoltest.ReadFile(t, filepath.Join("..", "..", "..", "README.md"))
	for _, said := range []string{
		"(jepsen/picture/picture.svg)", strings.Replace(p.Runs[0].release(), "with", "and", 1),
		p.Runs[1].release() + " never", fmt.Sprintf("seed %d", p.Seed),
	} {
		require.Contains(t, strings.Join(strings.Fields(readme), " "), said, "the text of the picture in the README")
	}
	_, double := bars(p.Runs[1].History)
	require.Zero(t, double, "the README says never")

	again := t.TempDir()
	require.NoError(t, p.Write(again))
	for _, r := range p.Runs {
		require.Equal(t, protocoltest.ReadFile(t, filepath.Join(published, r.Target+".jsonl")),
			protocoltest.ReadFile(t, filepath.Join(again, r.Target+".jsonl")), r.Target)
	}
}

const second = int64(time.Second)

// acquire is one that was granted, to an owner that is also the client.
func acquire(owner, at int64) history.Op {
	return history.Op{
		F: "acquire", Key: "l", Process: int(owner), Input: []int64{owner, 3000, owner}, Output: []int64{1},
		Outcome: history.OK, Call: at, Return: at,
	}
}

func release(owner, at int64) history.Op {
	return history.Op{
		F: "release", Key: "l", Process: int(owner), Input: []int64{owner}, Outcome: history.Info, Call: at,
		Return: at + second,
	}
}

func TestBars(t *testing.T) {
	tests := []struct {
		name   string
		ops    []history.Op
		bars   []bar
		double int
	}{
		{"nothing", nil, nil, 0},
		{
			"one after the other, until the release is sent",
			[]history.Op{acquire(0, 0), release(0, second), acquire(1, second)},
			[]bar{{0, span{0, second}, nil}, {1, span{second, 4 * second}, nil}},
			0,
		},
		{
			"two at once",
			[]history.Op{acquire(0, 0), acquire(1, second), release(1, 2*second)},
			[]bar{{0, span{0, 3 * second}, []span{{second, 2 * second}}}, {
				1,
				span{second, 2 * second},
				[]span{{second, 2 * second}},
			}},
			1,
		},
		{
			"three at once",
			[]history.Op{acquire(0, 0), acquire(1, second), acquire(2, 2*second)},
			[]bar{
				{0, span{0, 3 * second}, []span{{second, 3 * second}}},
				{1, span{second, 4 * second}, []span{{second, 4 * second}}},
				{2, span{2 * second, 5 * second}, []span{{2 * second, 4 * second}}},
			},
			2,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, double := bars(&history.History{Ops: test.ops})
			require.Equal(t, test.bars, got)
			require.Equal(t, test.double, double)
		})
	}
}

func TestEssenceIsGrantsAndTheirReleases(t *testing.T) {
	refused := acquire(1, second)
	refused.Output = []int64{0}
	lost := acquire(2, second)
	lost.Outcome = history.Info
	h := &history.History{
		Ops:    []history.Op{acquire(0, 0), refused, lost, release(0, second), release(2, 2*second)},
		Faults: []history.Fault{{Name: "kill-leader"}},
	}
	got := essence(h)
	require.Equal(t, []history.Op{h.Ops[0], h.Ops[3]}, got.Ops)
	require.Equal(t, h.Faults, got.Faults)
}

func TestDrawing(t *testing.T) {
	p := &Picture{
		Seed: 7, Time: 5 * time.Second, Nodes: 3, Clients: 2,
		Runs: []Run{
			{Target: "redis-sentinel", Version: "Redis server v=7.0.15 sha=00000000:0", History: &history.History{
				Ops: []history.Op{acquire(0, 0), acquire(1, second)},
				Faults: []history.Fault{
					{Name: "partition-<leader>", Start: second, Stop: 9 * second},
					{Name: "rain & storm", Start: 0, Stop: second},
				},
			}},
			{
				Target: "holdfast", Version: "holdfast 0.1.0 (0a1b2c)",
				History: &history.History{Ops: []history.Op{acquire(0, 0)}},
			},
		},
	}
	svg := string(p.SVG())
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	for _, want := range []string{
		"<tspan class=\"wrong\">two holders at once, one time</tspan>",
		"<tspan class=\"right\">never two holders at once</tspan>",
		"Redis 7.0.15 with Sentinel, Holdfast 0.1.0: 3 nodes each, the same faults (seed 7)", "leader cut off",
		"rain &amp; storm",
		"prefers-color-scheme: dark", `role="img"`,
	} {
		require.Contains(t, svg, want)
	}
	require.NotContains(t, svg, "<script")
	require.Equal(t, float64(right), p.x(int64(9*time.Second)), "nothing is drawn beyond the end")
}
