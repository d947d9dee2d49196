package virtual

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

const (
	// churnEnv is the virtual duration of the churn, such as "4h".
	churnEnv = "HOLDFAST_JEPSEN_CHURN"
	// shift is the duration after which all clients disconnect and new ones connect.
	shift = 2 * time.Minute
	// quietTime is longer than any lease, wait, delay and session of the workloads.
	quietTime = 40 * time.Second

	churnFaults = "member,partition,packets,kill,restart,pause,clock-jump,clock-strobe,clock-leader,disk,power,transfer,snapshot"
	nativeLocks = "native,nativequeue,nativeall,nativesession"
)

// churn has clients of native locks that come and go for hours under all kinds of faults.
type churn struct {
	driven
	world    *world
	settings *workload.Options
	nemesis  *nemesis.Nemesis
	faults   []schedule.Kind
}

// After hours of clients that come and go, of kills and of partitions, and a quiet time, no node has a key, hold,
// waiter or session left.
func TestNothingIsLeftAfterChurn(t *testing.T) {
	protocoltest.SkipShort(t, "a long simulation")
	length := shift
	if text := os.Getenv(churnEnv); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, churnEnv)
	}
	first, _ := seeds(t, 1)
	verdict, text := decided(t, first, func(seed uint64) (checker.Verdict, string) {
		c := &churn{driven: driven{o: runOptions{
			workload: nativeLocks, nemesis: churnFaults, nodes: 3, seed: seed,
			time: length,
		}}}
		synctest.Test(t, c.run)
		return c.judge()
	})
	t.Logf("%s of virtual time\n%s", length, text[:min(len(text), 4000)])
	require.Equal(t, checker.Valid, verdict, text)
}

func (c *churn) run(t *testing.T) {
	ctx := context.Background()
	c.world = newWorld(t, worldOptions{nodes: c.o.nodes, seed: c.o.seed})
	tgt := target{service{c.world}}
	require.NoError(t, tgt.Start(ctx))
	var err error
	c.faults, err = schedule.Select(nemesis.Kinds(), c.o.nemesis, tgt.Supports(ctx))
	require.NoError(t, err)
	c.settings = &workload.Options{
		Service: tgt.service, Concurrency: 24, Rate: 24, Timeout: 3 * time.Second, Features: tgt.Features(ctx),
		Settle: 6 * time.Second,
	}
	c.loads, err = workload.Build(c.o.workload, c.settings)
	require.NoError(t, err)
	c.settings.Recorder = history.NewRecorder(workload.Slots(c.settings.Concurrency + len(c.loads)))
	c.nemesis = &nemesis.Nemesis{
		Target: tgt, Net: c.world, Disks: c.world, Recorder: c.settings.Recorder,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for n := range max(1, int(c.o.time/shift)) {
		c.shift(ctx, uint64(n))
		require.NoError(t, c.nemesis.Heal())
		require.NoError(t, tgt.Serving(ctx))
		time.Sleep(quietTime)
		for _, node := range tgt.Members() {
			require.Empty(t, left(ctx, t, tgt, node), "%s, after %d shifts", node, n+1)
		}
	}
	workload.Final(ctx, c.loads, c.settings)
	looked, disagree := tgt.Agree(ctx)
	c.nemesis.Whole(ctx, c.o.nodes)
	c.h = c.settings.Recorder.History()
	require.NoError(t, c.h.Validate())
	c.others = []checker.Result{
		checker.External("replicas agree", looked, disagree),
		checker.External("processes", c.o.nodes, slices.Concat(c.world.Findings(), c.nemesis.Findings())),
	}
}

// shift runs new clients under new faults.
func (c *churn) shift(ctx context.Context, n uint64) {
	seed := c.o.seed<<16 + n
	c.settings.Seed = seed
	steps := schedule.Generate(schedule.Options{Seed: seed, Nodes: c.o.nodes, Time: shift, Faults: c.faults})
	for i := range steps {
		steps[i].At += time.Duration(c.settings.Recorder.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, shift)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.nemesis.Run(ctx, steps)
	}()
	workload.Run(ctx, c.loads, c.settings)
	<-done
}

// leftFields are INFO's counts of native locks.
var leftFields = []string{"lock_keys", "lock_holds", "lock_waiters", "lock_sessions", "lock_sessions_kept"}

// left lists what remains of native locks on a node.
func left(ctx context.Context, t *testing.T, tgt target, node string) (found []string) {
	t.Helper()
	conn, err := tgt.dial(ctx, node)
	require.NoError(t, err)
	defer conn.Close()
	do := func(words ...string) string {
		r := conn.Do(words...)
		require.Equal(t, history.OK, r.Outcome, "%v: %s", words, r.Why)
		if words[0] == "INFO" {
			return r.Value.Str
		}
		if r.Value.Elems != nil {
			return fmt.Sprint(r.Value.Elems[len(r.Value.Elems)-1].Elems)
		}
		return fmt.Sprint(r.Value.Num)
	}
	do("SELECT", workload.NativeDB)
	for _, words := range []string{"LOCK.LIST", "SESSION.LIST", "DBSIZE"} {
		if shown := do(words); shown != "[]" && shown != "0" {
			found = append(found, words+" "+shown)
		}
	}
	info := do("INFO", "locks")
	for _, field := range leftFields {
		require.True(t, strings.Contains(info, field+":"), field)
		if n := cluster.InfoInt(info, field); n != 0 {
			found = append(found, fmt.Sprintf("INFO %s:%d", field, n))
		}
	}
	return found
}
