//go:debug randseednop=0

package virtual

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/servertest"
)

// runOptions are the options of one virtual run.
type runOptions struct {
	workload, nemesis string
	nodes             int
	stubborn          bool
	slow              bool          // messages are delayed
	resends           bool          // lost messages are sent again, as by TCP
	undead            bool          // removed nodes continue
	light             bool          // few clients
	rate              int           // rounds a second; 0: the default
	between           time.Duration // maximum time between faults; 0: the default
	seed              uint64
	time              time.Duration
	// over is called with each run before it is judged; last within the bubble once all is mended, where final makes
	// clients read everything again.
	over   func(*driven)
	last   func(t *testing.T, tgt target, final func())
	broken func(node string, b frontend.Backend) frontend.Backend
}

// clients are enough for each workload alone, and for several together.
const clients = 36

// run performs one run in its own bubble and judges it.
func run(t *testing.T, o runOptions) (checker.Verdict, string) {
	t.Helper()
	d := drive(t, o)
	if o.over != nil {
		o.over(d)
	}
	return d.judge()
}

// driven is a finished run. It is judged outside of the bubble, where the time limits of searches are real.
type driven struct {
	o      runOptions
	loads  []workload.Load
	h      *history.History
	others []checker.Result // beside the results of the workloads
	term   uint64           // the highest term of the running nodes
}

// judge returns the verdict, and a description of the run.
func (d *driven) judge() (checker.Verdict, string) {
	results := append(workload.Check(d.loads, d.h), d.others...)
	return checker.Worst(results), describe(d.o, d.h, results)
}

// drive runs clients and faults, mends everything and performs the last reads.
func drive(t *testing.T, o runOptions) *driven {
	t.Helper()
	d := &driven{o: o}
	synctest.Test(t, d.drive)
	return d
}

func (d *driven) drive(t *testing.T) {
	ctx, o := context.Background(), d.o
	replicatest.Seed(t, o.seed)
	w := newWorld(t, worldOptions{
		nodes: o.nodes, seed: o.seed, raw: o.seed%3 == 1, stubborn: o.stubborn, slow: o.slow,
		resends: o.resends, undead: o.undead, broken: o.broken,
	})
	tgt := target{service{w}}
	require.NoError(t, tgt.Start(ctx))
	faults, err := schedule.Select(nemesis.Kinds(), o.nemesis, tgt.Supports(ctx))
	require.NoError(t, err)
	steps := schedule.Generate(schedule.Options{Seed: o.seed, Nodes: o.nodes, Time: o.time, Faults: faults, Between: o.between})
	settings := &workload.Options{
		Service: tgt.service, Seed: o.seed, Concurrency: clients, Rate: 150, Timeout: 3 * time.Second,
		Features: tgt.Features(ctx), Settle: 6 * time.Second,
	}
	if o.workload == "all" {
		settings.Concurrency, settings.Rate = 48, 200
	}
	if o.rate > 0 {
		settings.Rate = float64(o.rate)
	}
	if o.light {
		settings.Concurrency, settings.Rate = 6, 10
	}
	settings.Drift = schedule.Drift(faults)
	d.loads, err = workload.Build(o.workload, settings)
	require.NoError(t, err)
	settings.Recorder = history.NewRecorder(workload.Slots(settings.Concurrency + len(d.loads)))
	n := &nemesis.Nemesis{
		Target: tgt, Net: w, Disks: w, Recorder: settings.Recorder,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if o.stubborn {
		n.Stubbornness = 3 * servertest.Stubbornness
	}
	running, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Run(running, steps)
	}()
	workload.Run(running, d.loads, settings)
	<-done
	require.NoError(t, n.Heal())
	lost := w.lostWhileBusy(faults)
	n.Epilogue(ctx, o.seed)
	looked, wrong := 0, []string{}
	serving := tgt.Serving(ctx)
	if serving == nil {
		final := func() { workload.Final(ctx, d.loads, settings) }
		final()
		if o.last != nil {
			o.last(t, tgt, final)
		}
		looked, wrong = tgt.Agree(ctx)
		n.Whole(ctx, o.nodes)
		n.EachLeads(ctx)
	} else {
		wrong = append(wrong, serving.Error())
	}

	for _, node := range w.cluster.Nodes() {
		if r := node.Replica(); r != nil {
			d.term = max(d.term, r.Status().Term)
		}
	}
	d.h = settings.Recorder.History()
	require.NoError(t, d.h.Validate())
	judged, stalls := n.Liveness()
	d.others = []checker.Result{
		checker.External("replicas agree", looked, wrong),
		checker.External("liveness", judged, stalls),
		checker.External("processes", o.nodes, slices.Concat(w.Findings(), n.Findings(), lost)),
	}
}

// lostWhileBusy reports leadership lost although the only faults were busy state machines: a leader that is busy
// applying must keep its leadership.
func (w *world) lostWhileBusy(faults []schedule.Kind) (findings []string) {
	if len(faults) == 0 || slices.ContainsFunc(faults, func(k schedule.Kind) bool { return k.Group != "busy" }) {
		return nil
	}
	for _, n := range w.cluster.Nodes() {
		for _, e := range n.Events() {
			if e, lost := e.(replica.LeadershipLost); lost {
				findings = append(findings, fmt.Sprintf("%s lost the leadership of term %d while busy", n.Name, e.Term))
			}
		}
	}
	return findings
}

// describe describes a failed run. HOLDFAST_JEPSEN_DUMP names a file for the whole history.
func describe(o runOptions, h *history.History, results []checker.Result) string {
	var b strings.Builder
	if path := os.Getenv("HOLDFAST_JEPSEN_DUMP"); path != "" && checker.Worst(results) != checker.Valid {
		var lines strings.Builder
		for i := range h.Ops {
			fmt.Fprintln(&lines, &h.Ops[i])
		}
		_ = os.WriteFile(path, []byte(lines.String()), 0o644)
	}
	fmt.Fprintf(&b, "%s under %s, %d nodes, seed %d: %d operations, %d unknown\n",
		o.workload, o.nemesis, o.nodes, o.seed, len(h.Ops), h.Count(history.Info))
	for _, r := range results {
		fmt.Fprintln(&b, r)
	}
	for _, f := range h.Faults {
		fmt.Fprintf(&b, "%7.2f–%.2f %s %s\n", time.Duration(f.Start).Seconds(), time.Duration(f.Stop).Seconds(), f.Name,
			f.Detail)
	}
	return b.String()
}

// seedsEnv is the number of seeds, and optionally the first one: "40" or "40@1000".
const seedsEnv = "HOLDFAST_JEPSEN_SEEDS"

func seeds(t *testing.T, usual int) (first, count uint64) {
	t.Helper()
	first, count = 1, uint64(usual)
	text := os.Getenv(seedsEnv)
	if text == "" {
		return first, count
	}
	n, from, _ := strings.Cut(text, "@")
	count, err := strconv.ParseUint(n, 10, 64)
	require.NoError(t, err, seedsEnv)
	if from != "" {
		first, err = strconv.ParseUint(from, 10, 64)
		require.NoError(t, err, seedsEnv)
	}
	return first, count
}

// lengthEnv is each seed's duration, optionally with the clients' rounds per second and the maximum time between
// faults: "5m", "5m@5" or "1h@2/1m". Few rounds and faults make hours cheap.
const lengthEnv = "HOLDFAST_JEPSEN_LENGTH"

func length(t *testing.T, o *runOptions) {
	t.Helper()
	text := os.Getenv(lengthEnv)
	if text == "" {
		return
	}
	text, between, rare := strings.Cut(text, "/")
	long, rate, sparse := strings.Cut(text, "@")
	var err error
	o.time, err = time.ParseDuration(long)
	require.NoError(t, err, lengthEnv)
	if sparse {
		o.rate, err = strconv.Atoi(rate)
		require.NoError(t, err, lengthEnv)
	}
	if rare {
		o.between, err = time.ParseDuration(between)
		require.NoError(t, err, lengthEnv)
	}
}

// sums are the totals of many runs.
type sums struct {
	runs, operations, faults, terms int
	kinds                           map[string]bool // of faults
	time                            time.Duration
}

func (s *sums) add(d *driven) {
	s.runs++
	s.operations += len(d.h.Ops)
	s.faults += len(d.h.Faults)
	s.terms += int(d.term)
	for _, f := range d.h.Faults {
		s.kinds[f.Name] = true
	}
	s.time += d.o.time
}

// eachSeed runs a test for each seed, one after another, since the source of raft's timeouts is global to the process.
func eachSeed(t *testing.T, usual int, test func(t *testing.T, seed uint64)) {
	t.Helper()
	first, count := seeds(t, usual)
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			test(t, seed)
		})
	}
}

// tries is how often an invalid run is repeated; the count of failures shows how far a seed alone reproduces it.
const tries = 10

// decided repeats a run with other seeds while its verdict is unknown, at most twice, since searches may run out of
// time on a busy machine.
func decided(t *testing.T, seed uint64, run func(seed uint64) (checker.Verdict, string)) (verdict checker.Verdict, text string) {
	t.Helper()
	for range 3 {
		if verdict, text = run(seed); verdict != checker.Unknown {
			break
		}
		t.Log(text)
		seed += 1000
	}
	return verdict, text
}

// judged repeats a run whose verdict is unknown: see decided. An invalid run is repeated with the same seed, and the
// text counts the failures.
func judged(t *testing.T, o runOptions) (verdict checker.Verdict, text string) {
	t.Helper()
	verdict, text = decided(t, o.seed, func(seed uint64) (checker.Verdict, string) {
		o.seed = seed
		return run(t, o)
	})
	if verdict == checker.Invalid {
		text += fmt.Sprintf("invalid again in %d of %d tries with seed %d\n", repeated(t, o), tries, o.seed)
	}
	return verdict, text
}

// repeated counts the invalid ones among repetitions of the same seed.
func repeated(t *testing.T, o runOptions) (invalid int) {
	t.Helper()
	for range tries {
		if verdict, _ := run(t, o); verdict == checker.Invalid {
			invalid++
		}
	}
	return invalid
}

// trueRates are all faults except those of clock rates, so that leases must be exact to the millisecond.
const trueRates = "member,partition,packets,kill,restart,pause,clock,busy,disk,power,transfer,snapshot"

func TestWorkloadsUnderMixedFaults(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations; TestNativeLocksUnderMixedFaults stays")
	all := sums{kinds: map[string]bool{}}
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		o := runOptions{workload: "all", nemesis: trueRates, nodes: 3, seed: seed, time: 30 * time.Second, over: all.add}
		length(t, &o)
		if seed%3 == 0 {
			o.nemesis = "mixed"
		}
		if seed%4 == 0 {
			o.nodes = 5
		}
		o.stubborn, o.slow = seed%2 == 0, seed%5 == 0
		// At the default rate too many requests would have an unknown outcome for the checkers' search.
		o.resends = o.rate > 0 && seed%2 == 1
		verdict, text := judged(t, o)
		if testing.Verbose() || verdict != checker.Valid {
			t.Log(text)
		}
		require.Equal(t, checker.Valid, verdict, text)
	})
	// The program's --virtual reads this line.
	t.Logf("%d runs, %s of virtual time, %d operations, %d terms, %d faults of %d kinds",
		all.runs, all.time, all.operations, all.terms, all.faults, len(all.kinds))
}

// narrow are faults that rarely coincide in a mixed run, or whose effect shows only without others.
var narrow = []struct {
	name, workload, nemesis string
	slow                    bool
}{
	// Busy state machines must not cost leadership.
	{"busy", "append,lock", "busy", false},
	// Acknowledged writes survive a power cut, even if a process had found them only in the page cache.
	{"power", "append,register", "power-append,power-sync", false},
	// A node can follow even if its log has an entry after its snapshot that no other node has. A refused append is sent
	// again at once, so without a delay virtual time would stand still.
	{"tail", "append,register", "snapshot-tail", true},
	// The leader is partitioned during transfers.
	{"transfer", "append,counter", "partition-leader,transfer", false},
}

func TestNarrowFaults(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations")
	for _, n := range narrow {
		t.Run(n.name, func(t *testing.T) {
			eachSeed(t, 2, func(t *testing.T, seed uint64) {
				verdict, text := judged(t, runOptions{
					workload: n.workload, nemesis: n.nemesis, nodes: 3 + 2*int(seed/2%2), seed: seed, time: 45 * time.Second,
					slow: n.slow || seed%2 == 0,
				})
				if testing.Verbose() {
					t.Log(text)
				}
				require.Equal(t, checker.Valid, verdict, text)
			})
		})
	}
}
