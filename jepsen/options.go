package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// options has the values of the flags.
type options struct {
	target, workload, nemesis string
	nodes, concurrency        int
	time, timeout, soak       time.Duration
	rate                      float64
	seed                      uint64
	store, net                string
	binary, tags, before      string
	serverArgs                string
	check, picture, virtual   string
	libraries                 string
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("jepsen", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.target, "target", "holdfast", "what is tested: holdfast or redis-sentinel")
	fs.StringVar(&o.workload, "workload", "all", "what clients do, separated by commas: "+strings.Join(workload.Names(),
		", ")+"; all: every one that is valid by itself")
	fs.StringVar(&o.nemesis, "nemesis", "mixed",
		"what is broken, separated by commas: names or groups of faults (see --help), mixed (all but hostile), all, none")
	fs.IntVar(&o.nodes, "nodes", 3, "nodes of a holdfast cluster")
	fs.IntVar(&o.concurrency, "concurrency", 48, "clients, dealt out to the workloads")
	fs.DurationVar(&o.time, "time", time.Minute, "how long clients run")
	fs.DurationVar(&o.timeout, "timeout", 3*time.Second, "how long a client waits for a reply")
	fs.Float64Var(&o.rate, "rate", 300, "rounds a second that all clients together begin, at most")
	fs.Uint64Var(&o.seed, "seed", 0, "names the schedule of faults; 0: draw one")
	fs.StringVar(&o.store, "store", "store", "folder for the reports, one in it for each run")
	fs.StringVar(&o.net, "net", "auto", "how the net is cut: kernel (namespaces and iptables, as root), proxies, or auto")
	fs.StringVar(&o.binary, "binary", "", "the holdfast program; default: built from this module")
	fs.StringVar(&o.before, "before", "",
		"the holdfast program of the release before: nodes begin with it, and the faults of the group release replace it, "+
			"node by node")
	fs.StringVar(&o.tags, "tags", "invariants",
		"build tags for that: invariants has nodes check their state")
	fs.StringVar(&o.serverArgs, "server-args", "",
		"more flags for holdfast serve, or lines for redis.conf, separated by semicolons")
	fs.DurationVar(&o.soak, "soak", 0, "run seed after seed for so long, and keep the reports of those that are not valid")
	fs.StringVar(&o.virtual, "virtual", "",
		"with --soak: runs in virtual time instead, one on each core, until one is not valid; how long each is, with how "+
			"many rounds a second, and how much time between faults at most: 1h@1/2m")
	fs.StringVar(&o.libraries, "libraries", "go,python",
		"for the workload library: the languages whose client libraries are used, by turns: go, python, asyncio, java, "+
			"typescript")
	fs.StringVar(&o.check, "check", "", "judge a stored history.jsonl again instead of running anything")
	fs.StringVar(&o.picture, "picture", "",
		"run Redis with Sentinel and Holdfast under one schedule (only --seed and --store are heeded), and draw who held "+
			"a lock, into this folder")
	fs.Usage = func() {
		fmt.Fprintln(stderr,
			"Runs a cluster, breaks things, and judges what its clients saw. Exit status 0: valid, 1: not, 2: nothing shown.")
		fs.PrintDefaults()
		fmt.Fprintln(stderr, "\nFaults:")
		for _, k := range nemesis.Kinds() {
			fmt.Fprintf(stderr, "  %-11s %-18s %s\n", k.Group, k.Name, k.Summary)
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.virtual != "" && o.soak == 0:
		return nil, fmt.Errorf("virtual: only with --soak")
	case o.nodes < 1 || o.nodes%2 == 0:
		return nil, fmt.Errorf("nodes %d: use 1, 3, 5 or 7", o.nodes)
	case o.before != "" && o.target != "holdfast":
		return nil, fmt.Errorf("before: target %s has one program", o.target)
	case o.concurrency < 1 || o.rate <= 0:
		return nil, fmt.Errorf("concurrency and rate must be above 0")
	}
	if o.seed == 0 && o.picture != "" {
		o.seed = pictureSeed
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	return o, nil
}

// reproduce returns the command line of the same run.
func (o *options) reproduce(net string) string {
	words := []string{
		"go run ./jepsen", "--target " + o.target, "--workload " + o.workload, "--nemesis " + o.nemesis,
		fmt.Sprintf("--nodes %d --concurrency %d --time %s --timeout %s --rate %g --seed %d --net %s",
			o.nodes, o.concurrency, o.time, o.timeout, o.rate, o.seed, net),
	}
	if o.tags != "invariants" {
		words = append(words, "--tags "+o.tags)
	}
	if strings.Contains(o.workload, "library") {
		words = append(words, "--libraries "+o.libraries)
	}
	if o.before != "" {
		words = append(words, "--before "+o.before)
	}
	if o.serverArgs != "" {
		words = append(words, fmt.Sprintf("--server-args %q", o.serverArgs))
	}
	return strings.Join(words, " ")
}

// binaryEnv is the environment variable with the path of the built program, for the process inside the namespaces.
const binaryEnv = "HOLDFAST_JEPSEN_BINARY"

// build builds the server's program, unless there is one, and returns a function that removes it.
func (o *options) build() (remove func(), err error) {
	remove = func() {}
	if o.target != "holdfast" || o.binary != "" {
		return remove, nil
	}
	if o.binary = os.Getenv(binaryEnv); o.binary != "" {
		return remove, nil
	}
	dir, err := os.MkdirTemp("", "holdfast-jepsen-")
	if err != nil {
		return remove, fmt.Errorf("make folder for the program: %w", err)
	}
	remove = func() { os.RemoveAll(dir) }
	o.binary = filepath.Join(dir, "holdfast")
	if err := fleet.Build(context.Background(), ".", o.binary, "github.com/holdfast/holdfast/cmd/holdfast", "-tags",
		o.tags); err != nil {
		remove()
		return func() {}, err
	}
	return remove, os.Setenv(binaryEnv, o.binary)
}

// version returns the version that the server's program reports.
func (o *options) version(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "redis-server", "--version")
	if o.target == "holdfast" {
		cmd = exec.CommandContext(ctx, o.binary, "version")
	}
	out, err := cmd.Output()
	if err != nil {
		return "unknown version: " + err.Error()
	}
	return strings.TrimSpace(string(out))
}

// passed returns the flags for the server, or the lines for redis.conf.
func (o *options) passed() []string {
	var args []string
	if o.target != "holdfast" {
		for line := range strings.SplitSeq(o.serverArgs, ";") {
			args = append(args, strings.TrimSpace(line))
		}
		return args
	}
	for word := range strings.SplitSeq(o.nemesis, ",") {
		if word == "mixed" || word == "all" || strings.Contains(word, "snapshot") {
			args = strings.Fields(snapshots[o.seed%uint64(len(snapshots))])
			break
		}
	}
	return append(args, strings.Fields(strings.ReplaceAll(o.serverArgs, ";", " "))...)
}

// snapshots has flags for frequent snapshots, of which the seed selects one. Few entries are kept after a snapshot, so
// that a node that was down gets a snapshot instead.
var snapshots = []string{
	"--snapshot-threshold 16 --trailing-logs 1",
	"--snapshot-threshold 64 --trailing-logs 8",
	"--snapshot-threshold 256 --trailing-logs 20",
}

// folder creates the folder of a run's report, and returns its path.
func (o *options) folder(began time.Time) (string, error) {
	name := os.Getenv(soakEnv)
	if name == "" {
		name = filepath.Join(o.store, began.Format("20060102-150405")+fmt.Sprintf("-%s-%d", o.target, o.seed))
	}
	dir, err := filepath.Abs(name)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("make store: %w", err)
	}
	return dir, nil
}
