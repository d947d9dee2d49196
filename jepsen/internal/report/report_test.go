package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

func TestEverythingIsWritten(t *testing.T) {
	second := int64(time.Second)
	h := &history.History{
		Ops: []history.Op{
			{Node: "n1", F: "write", Key: "r", Input: []int64{1}, Outcome: history.OK, Call: 1, Return: second},
			{Index: 1, Process: 1, Node: "n1", F: "read", Key: "r", Outcome: history.OK, Call: second + 1, Return: 2 * second},
		},
		Faults: []history.Fault{{Name: "kill-leader", Detail: "n1 <leader>", Start: second, Stop: second + 5}},
	}
	check := checker.Linear("linearizable", checker.Register(), checker.RegisterFunctions)
	r := &Report{
		Run: Run{
			Target: "holdfast", Workload: "register", Nemesis: "kill", Nodes: 3, Seed: 42,
			Reproduce: "go run ./jepsen --seed 42",
		},
		Results: []checker.Result{check(h)}, Outages: checker.Availability(h), History: h,
		Schedule: []schedule.Step{{At: time.Second, Fault: "kill-leader", Order: []int{0, 1, 2}}},
	}
	r.Verdict = checker.Worst(r.Results)
	require.Equal(t, checker.Invalid, r.Verdict)
	dir := t.TempDir()
	require.NoError(t, r.Write(dir))

	read := func(name string) string {
		data := protocoltest.ReadFile(t, filepath.Join(dir, name))
		return data
	}
	require.Contains(t, read("verdict.txt"), "verdict: INVALID\nagain:   go run ./jepsen --seed 42\n")
	require.Contains(t, read("verdict.txt"), "no order of its 2 operations")
	require.Contains(t, read("report.html"), "kill-leader: n1 &lt;leader&gt;")
	require.Contains(t, read("report.html"), ">kill, restart</span>.")
	require.Contains(t, read("report.html"), `<a href="timeline-linearizable.html">`)
	require.Contains(t, read("schedule.txt"), "kill-leader")
	require.Contains(t, read("results.json"), `"verdict": "INVALID"`)
	require.Contains(t, read("history.edn"), ":f :start-kill-leader")
	require.Contains(t, read("timeline-linearizable.html"), "<html")
	f, err := os.Open(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	back, err := history.ReadJSON(f)
	require.NoError(t, err)
	require.Equal(t, h, back)
}
