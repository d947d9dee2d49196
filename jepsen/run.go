package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/disks"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/report"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

const (
	// startLimit bounds the time until a cluster serves, at the start and after all faults are healed.
	startLimit = time.Minute
	// finalLimit bounds the time of the final reads.
	finalLimit = time.Minute
	// settle is the time after a fault in which there may be no leader, so that leases do not advance.
	settle = 6 * time.Second
)

// run runs the program with these arguments, and returns the exit status.
func run(ctx context.Context, args []string) (int, error) {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return exitUnknown, err
	}
	if o.check != "" {
		return recheck(o)
	}
	if o.virtual != "" {
		return soakVirtual(ctx, o)
	}
	remove, err := o.build()
	if err != nil {
		return exitUnknown, err
	}
	defer remove()
	if o.picture != "" {
		return draw(ctx, o)
	}
	if o.soak > 0 {
		return soak(ctx, o, args, func() {})
	}
	if o.net != "proxies" {
		if err := network.CanUseKernel(); err == nil {
			entered, code, err := network.Reenter()
			if entered {
				return code, err
			}
			if err != nil && o.net == "kernel" {
				return exitUnknown, err
			}
		} else if o.net == "kernel" {
			return exitUnknown, fmt.Errorf("kernel net: %w", err)
		}
	}
	began := time.Now()
	dir, err := o.folder(began)
	if err != nil {
		return exitUnknown, err
	}
	r := &trial{o: o, dir: dir, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	rep, err := r.do(ctx)
	if err != nil {
		return exitUnknown, err
	}
	rep.Run.Began = began
	if err := rep.Write(dir); err != nil {
		return exitUnknown, err
	}
	if rep.Verdict == checker.Valid {
		// The data of a valid run, a hundred megabytes, is not needed.
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			return exitUnknown, fmt.Errorf("remove data: %w", err)
		}
	}
	if err := rep.WriteText(os.Stdout); err != nil {
		return exitUnknown, err
	}
	fmt.Printf("report:  %s\n", filepath.Join(dir, "report.html"))
	return exitCode(rep.Verdict), nil
}

func exitCode(v checker.Verdict) int {
	switch v {
	case checker.Valid:
		return exitValid
	case checker.Invalid:
		return exitInvalid
	}
	return exitUnknown
}

// trial is the test of one cluster.
type trial struct {
	o   *options
	dir string
	log *slog.Logger

	net      network.Network
	target   cluster.Target
	steps    []schedule.Step
	recorder *history.Recorder
	loads    []workload.Load
	settings *workload.Options
	findings []string // failures to heal the cluster, and to serve afterwards
	shown    []string // findings of the faults
	judged   int      // number of times at which the cluster had to serve
	stalls   []string // the times at which it did not

	disks     *disks.Disks // nil if no fault needs them
	supported []string     // faults that disks make possible
	skipped   []string     // requested faults that are impossible, with the reasons
	verdict   checker.Verdict

	// The fields below are set with faults of hostile clients.
	nodeLimits cluster.Limits
	usage      map[string]cluster.Usage
}

// do runs everything from the first process to the verdict.
func (t *trial) do(ctx context.Context) (*report.Report, error) {
	if err := t.openNet(); err != nil {
		return nil, err
	}
	defer t.net.Close()
	if err := t.openDisks(); err != nil {
		return nil, err
	}
	if err := t.openTarget(); err != nil {
		return nil, errors.Join(err, t.closeDisks())
	}
	defer func() {
		if err := errors.Join(t.target.Close(), t.closeDisks()); err != nil {
			t.log.Warn("end", "error", err)
		}
	}()
	t.log.Info("starting", "target", t.o.target, "net", t.net.Kind(), "seed", t.o.seed, "store", t.dir)
	start, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := t.target.Start(start); err != nil {
		return nil, fmt.Errorf("start %s: %w (see %s)", t.o.target, err, t.dir)
	}
	if err := t.plan(ctx); err != nil {
		return nil, err
	}
	t.drive(ctx)
	return t.judge(context.WithoutCancel(ctx)), nil
}

// spares returns the number of places without a node at first, for faults of members and clusters of backups.
func (t *trial) spares() int {
	asked, err := schedule.Select(nemesis.Kinds(), t.o.nemesis, nemesis.Names())
	if err != nil || t.o.target != "holdfast" || t.o.nodes < 3 || !slices.ContainsFunc(asked, func(k schedule.Kind) bool {
		return k.Lane == schedule.Members
	}) {
		return 0
	}
	return 2
}

// places returns the names of places where nodes may run.
func (t *trial) places() []string { return network.Nodes(t.o.nodes + t.spares()) }

// openNet creates the requested network, or the best one that is possible.
func (t *trial) openNet() error {
	n := len(t.places())
	if t.o.target == "redis-sentinel" {
		n = 3
	}
	if t.o.net != "proxies" && network.CanUseKernel() == nil {
		k, err := network.NewKernel(n)
		if err == nil {
			t.net = k
			return nil
		}
		if t.o.net == "kernel" {
			return err
		}
		t.log.Warn("no kernel net, using proxies", "error", err)
	}
	p, err := network.NewProxies(n, "client", "peer", "peer2", "sentinel")
	if err != nil {
		return err
	}
	t.net = p
	return nil
}

// openDisks creates disks whose power can be cut if the faults need them. If it cannot, these faults are skipped.
func (t *trial) openDisks() error {
	asked, err := schedule.Select(nemesis.Kinds(), t.o.nemesis, nemesis.Names())
	if err != nil || t.o.target != "holdfast" || !slices.ContainsFunc(asked, func(k schedule.Kind) bool {
		return k.Group == "power"
	}) {
		return err
	}
	t.disks, err = disks.Open(filepath.Join(t.dir, "disks"), t.places())
	if err != nil {
		t.skip("power", err.Error())
		return nil
	}
	t.supported = []string{"power-cut", "power-restart"}
	if _, err := exec.LookPath("strace"); err != nil {
		t.skip("power-window", err.Error())
		return nil
	}
	t.supported = append(t.supported, "power-window")
	return nil
}

// skip records requested faults that are skipped.
func (t *trial) skip(faults, why string) {
	t.log.Warn("skipped", "faults", faults, "why", why)
	t.skipped = append(t.skipped, faults+": "+why)
}

// closeDisks unmounts the disks, and keeps their contents if the run is not valid.
func (t *trial) closeDisks() error {
	if t.disks == nil {
		return nil
	}
	var errs []error
	if t.verdict != checker.Valid {
		for _, m := range t.places() {
			errs = append(errs, os.CopyFS(filepath.Join(t.dir, "data", m), os.DirFS(t.disks.Dir(m))))
		}
	}
	if err := t.disks.Close(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(t.dir, "disks")))...)
}

func (t *trial) openTarget() (err error) {
	c := cluster.Config{
		Net: t.net, Dir: t.dir, Nodes: t.o.nodes, Spares: t.spares(), DataDir: t.dataDir,
		Binary: t.o.binary, Before: t.o.before, Args: t.o.passed(),
	}
	if t.hostile() {
		c.Password = password
		if c.Limits, err = t.limits(); err != nil {
			return err
		}
		t.nodeLimits = c.Limits
	}
	switch t.o.target {
	case "holdfast":
		t.target = cluster.NewHoldfast(c)
	case "redis-sentinel":
		t.target, err = cluster.NewSentinel(c)
	default:
		return fmt.Errorf("no target %q: there are holdfast and redis-sentinel", t.o.target)
	}
	return err
}

// plan generates the schedule, and builds the workloads.
func (t *trial) plan(ctx context.Context) error {
	supported := append(t.target.Supports(ctx), t.supported...)
	faults, err := schedule.Select(nemesis.Kinds(), t.o.nemesis, supported)
	if err != nil {
		return fmt.Errorf("%w %v", err, t.skipped)
	}
	t.steps = schedule.Generate(schedule.Options{
		Seed: t.o.seed, Nodes: len(t.target.Members()), Time: t.o.time,
		Faults: faults,
	})
	t.settings = &workload.Options{
		Service: t.target, Seed: t.o.seed, Concurrency: t.o.concurrency, Rate: t.o.rate,
		Timeout: t.o.timeout, Features: t.target.Features(ctx), Settle: settle,
	}
	t.settings.Drift = schedule.Drift(faults)
	if strings.Contains(t.o.workload, "library") {
		if t.settings.Drivers, err = workload.Drivers(ctx, t.o.libraries, t.dir); err != nil {
			return err
		}
	}
	t.loads, err = workload.Build(t.o.workload, t.settings)
	return err
}

// drive runs clients and faults, heals all faults, and performs the final reads.
func (t *trial) drive(ctx context.Context) {
	t.recorder = history.NewRecorder(workload.Slots(t.o.concurrency + len(t.loads)))
	t.settings.Recorder = t.recorder
	n := &nemesis.Nemesis{Target: t.target, Net: t.net, Recorder: t.recorder, Log: t.log, DataDir: t.dataDir}
	defer func() {
		t.shown = n.Findings()
		t.judged, t.stalls = n.Liveness()
	}()
	if t.disks != nil {
		n.Disks = t.disks
	}
	running, cancel := context.WithTimeout(ctx, t.o.time)
	defer cancel()
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		n.Run(running, t.steps)
	}()
	watched := make(chan map[string]cluster.Usage, 1)
	if tracers, ok := t.target.Fleet().(cluster.Tracers); ok && t.hostile() {
		go func() { watched <- cluster.Watch(running, t.target.Members(), tracers, t.dataDir, t.recorder.Now) }()
	} else {
		watched <- nil
	}
	workload.Run(running, t.loads, t.settings)
	<-broken
	t.usage = <-watched

	t.log.Info("mending everything")
	err := n.Heal()
	n.Epilogue(context.WithoutCancel(ctx), t.o.seed)
	if err := errors.Join(err, n.FinishUpgrade()); err != nil {
		t.findings = append(t.findings, fmt.Sprintf("mend everything: %v", err))
	}
	healed := time.Now()
	serving, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	if err := t.target.Serving(serving); err != nil {
		t.findings = append(t.findings, fmt.Sprintf("%s after all was mended: %v", startLimit, err))
		return
	}
	t.log.Info("serving", "after", time.Since(healed).Round(time.Millisecond))
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalLimit)
	defer cancel()
	workload.Final(final, t.loads, t.settings)
	if t.spares() > 0 {
		n.Whole(context.WithoutCancel(ctx), t.o.nodes)
	}
	n.EachLeads(final)
	n.Raised(context.WithoutCancel(ctx))
}

func (t *trial) dataDir(member string) string {
	if t.disks != nil {
		return t.disks.Dir(member)
	}
	return filepath.Join(t.dir, "data", member)
}

// judge runs all checkers.
func (t *trial) judge(ctx context.Context) *report.Report {
	looked, disagree := 0, []string(nil)
	if t.findings == nil {
		looked, disagree = t.target.Agree(ctx)
	}
	t.log.Info("checking")
	h := t.recorder.History()
	results := workload.Check(t.loads, h)
	if looked > 0 || disagree != nil {
		results = append(results, checker.External("replicas agree", looked, disagree))
	}
	if t.judged > 0 {
		results = append(results, checker.External("liveness", t.judged, t.stalls))
	}
	results = append(results, checker.External("processes", len(t.target.Members()),
		slices.Concat(t.target.Fleet().Findings(), t.findings, t.shown)))
	results = append(results, judgeHostile(h, t.usage, t.nodeLimits)...)
	if err := h.Validate(); err != nil {
		results = append(results, checker.External("history", len(h.Ops), []string{err.Error()}))
	}
	t.verdict = checker.Worst(results)
	return &report.Report{
		Skipped: t.skipped,
		Run: report.Run{
			Target: t.o.target, Network: t.net.Kind(), Workload: t.o.workload, Nemesis: t.o.nemesis,
			Nodes: len(t.target.Members()), Seed: t.o.seed, Time: t.o.time, Version: t.o.version(ctx),
			Reproduce: t.o.reproduce(t.net.Kind()),
		},
		Verdict: t.verdict, Results: results, Outages: checker.Availability(h),
		History: h, Schedule: t.steps,
	}
}

// recheck judges a stored history again.
func recheck(o *options) (int, error) {
	h, err := history.ReadFile(o.check)
	if err != nil {
		return exitUnknown, err
	}
	settings := &workload.Options{Concurrency: o.concurrency, Settle: settle, Drift: h.Drift()}
	loads, err := workload.Build(o.workload, settings)
	if err != nil {
		return exitUnknown, err
	}
	results := workload.Check(loads, h)
	if results == nil {
		return exitUnknown, errors.New("no workload to judge")
	}
	for _, r := range results {
		fmt.Println(r)
	}
	verdict := checker.Worst(results)
	fmt.Printf("verdict: %s\n", verdict)
	return exitCode(verdict), nil
}
