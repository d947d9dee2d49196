package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/peers"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// options are the flags.
type options struct {
	targets     []target.Target
	peers       []string
	holdfast    string
	before      string
	workloads   []planned
	connections []int
	rates       []float64
	depths      []int
	held        []int
	roundTrips  []time.Duration
	rounds      int
	env         workload.Env // the same in all runs
	out         string
	preset      string
	write       string
}

// planned is a requested workload, with its own numbers of connections and targets, or none for all.
type planned struct {
	workload.Workload
	connections []int
	targets     []string
}

func parsePlanned(spec string) (planned, error) {
	spec, targets, limited := strings.Cut(spec, "@")
	name, numbers, _ := strings.Cut(spec, ":")
	w, err := workload.Named(name)
	p := planned{Workload: w}
	if limited {
		p.targets = strings.Split(targets, "+")
	}
	return p, errors.Join(err, parseList(strings.ReplaceAll(numbers, "+", ","), strconv.Atoi, &p.connections))
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var targets, peerNames, pids, workloads, connections, rates, depths, held, roundTrips string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&targets, "targets", "",
		"what to measure: name=host:port[+host:port…][@leader|@followers|@spread|@redlock][@native|@redisson][@wait=N],…")
	fs.StringVar(&peerNames, "peers", "", "servers to start and measure, any of: "+strings.Join(peers.Names(), ", "))
	fs.StringVar(&o.before, "before", "", "binary of another build, for the peer holdfast-before")
	fs.StringVar(&o.holdfast, "holdfast", "", "binary of holdfast for --peers; default: built from this tree")
	fs.StringVar(&pids, "pids", "", "the targets' processes, for CPU and memory: name=pid[+pid…],…")
	fs.StringVar(&workloads, "workloads", "uncontended",
		"what is measured, as name[:connections+connections…][@target+target…], any of: "+strings.Join(workload.Names(),
			", "))
	fs.StringVar(&connections, "connections", "1,16,64,256", "numbers of connections, each a run of its own")
	fs.StringVar(&rates, "rates", "",
		"open loop: operations a second to offer, each a run of its own; default: closed loop")
	fs.StringVar(&o.preset, "preset", "", "flags that belong together: "+strings.Join(presetOrder, ", "))
	fs.StringVar(&o.write, "write", "",
		"measure nothing, but write the performance section of this file from what presets left in --out")
	fs.IntVar(&o.rounds, "rounds", 3, "how often everything is measured; tables show medians")
	fs.StringVar(&o.out, "out", "bench-results", "folder for results and for what measured servers store: on a real disk")
	fs.DurationVar(&o.env.Warmup, "warmup", 2*time.Second, "time before the window of a run")
	fs.DurationVar(&o.env.Measure, "measure", 5*time.Second, "window of a run")
	fs.DurationVar(&o.env.Client.TTL, "ttl", 30*time.Second, "time to live of locks")
	fs.DurationVar(&o.env.Client.Timeout, "timeout", 5*time.Second, "limit of one command")
	sizes := &o.env.Sizes
	fs.IntVar(&sizes.Keys, "keys", 100_000, "keys of uncontended and reads")
	fs.IntVar(&sizes.Shared, "shared", 10, "keys of contended")
	fs.StringVar(&depths, "depth", "16", "commands in a pipeline, each a run of its own")
	fs.StringVar(&held, "held", "10,1000,1000000", "numbers of locks that are held in growth, each a run of its own")
	fs.StringVar(&roundTrips, "round-trips", "",
		"times from a server of a peer to another and back, each a run of its own; default: as this machine has it")
	fs.Float64Var(&sizes.Steady, "steady", 1000, "pairs a second that snapshot offers")
	fs.IntVar(&sizes.Locks, "locks", 1_000_000, "locks that memory, snapshot and restart hold")
	fs.IntVar(&sizes.Idle, "idle", 10_000, "connections that idle, parked and native-connections open")
	fs.IntVar(&sizes.Sessions, "sessions", 100_000, "sessions that native-sessions keeps alive")
	fs.IntVar(&sizes.Failover, "kills", 5,
		"times that failover kills the leader, freeze stops it and hang holds up its disk, a round")
	fs.DurationVar(&sizes.Poll, "poll", 10*time.Millisecond,
		"pause of a worker that polls for a lock, give or take a half")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if err := applyPreset(fs, o.preset); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, errors.Join(
		o.parseTargets(targets, pids), o.parsePeers(peerNames), o.parseWorkloads(workloads),
		parseList(connections, strconv.Atoi, &o.connections), parseList(rates, parseRate, &o.rates),
		parseList(depths, strconv.Atoi, &o.depths), parseList(held, strconv.Atoi, &o.held),
		parseList(roundTrips, time.ParseDuration, &o.roundTrips), o.validate(),
	)
}

func (o *options) validate() error {
	var errs error
	s := o.env.Sizes
	for name, n := range map[string]int{
		"rounds": o.rounds, "keys": s.Keys, "shared": s.Shared, "locks": s.Locks, "idle": s.Idle, "sessions": s.Sessions,
		"kills": s.Failover,
	} {
		if n < 1 {
			errs = errors.Join(errs, fmt.Errorf("--%s %d: want at least 1", name, n))
		}
	}
	if o.env.Measure <= 0 || o.env.Client.TTL < time.Millisecond || o.env.Client.Timeout <= 0 {
		errs = errors.Join(errs, errors.New("--measure, --ttl and --timeout must be positive"))
	}
	counts := map[string][]int{"connections": o.connections, "depth": o.depths, "held": o.held}
	for _, w := range o.workloads {
		if len(w.connections) > 0 {
			counts["workloads "+w.Name] = w.connections
		}
	}
	for name, list := range counts {
		if slices.ContainsFunc(list, func(n int) bool { return n < 1 }) || len(list) == 0 {
			errs = errors.Join(errs, fmt.Errorf("--%s: want numbers from 1", name))
		}
	}
	if s.Steady <= 0 {
		errs = errors.Join(errs, fmt.Errorf("--steady %g: want a number above 0", s.Steady))
	}
	if slices.ContainsFunc(o.roundTrips, func(d time.Duration) bool { return d <= 0 }) {
		errs = errors.Join(errs, errors.New("--round-trips: want times above 0"))
	}
	if len(o.roundTrips) > 0 && len(o.targets) > 0 {
		errs = errors.Join(errs, errors.New("--round-trips is for --peers alone"))
	}
	if slices.ContainsFunc(o.rates, func(r float64) bool { return r <= 0 }) {
		errs = errors.Join(errs, errors.New("--rates: want numbers above 0"))
	}
	return errs
}

func parseRate(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// parseList parses a comma-separated list; "" is empty.
func parseList[T any](list string, parse func(string) (T, error), into *[]T) error {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		v, err := parse(strings.TrimSpace(item))
		if err != nil {
			return fmt.Errorf("read list %q: %w", list, err)
		}
		*into = append(*into, v)
	}
	return nil
}

func (o *options) parseTargets(specs, pids string) error {
	if err := parseList(specs, target.Parse, &o.targets); err != nil {
		return err
	}
	for item := range strings.SplitSeq(pids, ",") {
		if item == "" {
			continue
		}
		name, list, _ := strings.Cut(item, "=")
		i := slices.IndexFunc(o.targets, func(t target.Target) bool { return t.Name == name })
		if i < 0 {
			return fmt.Errorf("--pids %q: no target has this name", item)
		}
		var processes []int
		if err := parseList(strings.ReplaceAll(list, "+", ","), strconv.Atoi, &processes); err != nil {
			return err
		}
		o.targets[i].PIDs = func() []int { return processes }
	}
	return nil
}

func (o *options) parsePeers(names string) error {
	return parseList(names, func(name string) (string, error) {
		if !slices.Contains(peers.Names(), name) {
			return "", fmt.Errorf("there is no peer %q, but %s", name, strings.Join(peers.Names(), ", "))
		}
		return name, nil
	}, &o.peers)
}

func (o *options) parseWorkloads(names string) error {
	return parseList(names, parsePlanned, &o.workloads)
}

// quoteArgs quotes arguments for a shell.
func quoteArgs(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; strings.ContainsAny(a, " '\"$*?") {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
