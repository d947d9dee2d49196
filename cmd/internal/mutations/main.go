// Command mutations makes mistakes in the code and expects a test to notice each.
//
//	go -C cmd/internal/mutations run .                the mistakes in the tables, each with the test that it names
//	go -C cmd/internal/mutations run . -changed main  machine-made mistakes in the lines that main does not have
//	go -C cmd/internal/mutations run . -sample 300    machine-made mistakes anywhere
//	go -C cmd/internal/mutations run . -servers /dir  an overlay with the servers of jepsen/mutants.txt
//
// Folders as arguments, from the server's root, limit it to their packages. It is a module of its own, so that the server
// requires nothing for it. DESIGN.md has the form of the tables, the operators, and how a verdict comes about. Start
// reading at prove.go for the tables and at machine.go for the others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	left, err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(2)
	case left > 0:
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	root     string
	parallel int
	verbose  bool
	changed  string
	sample   int
	removals bool
	own      bool
	most     int
	seed     uint64
	floor    float64
	servers  string
	dirs     []string
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("mutations", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.root, "root", "../../..", "`folder` with go.mod of what is judged")
	fs.IntVar(&o.parallel, "parallel", 2, "tests that run at a time")
	fs.BoolVar(&o.verbose, "v", false, "print what was killed, too")
	fs.StringVar(&o.changed, "changed", "",
		"make mistakes in the lines that this `revision` of git does not have; prove the tables of their packages")
	fs.IntVar(&o.sample, "sample", 0, "make this many mistakes anywhere")
	fs.BoolVar(&o.removals, "removals", false, "with -sample: only removals of statements and of terms of conditions")
	fs.BoolVar(&o.own, "own", false, "judge a machine-made mistake by the tests of its package and of folders below it alone")
	fs.IntVar(&o.most, "most", 300, "with -changed: make this many mistakes at most")
	fs.Uint64Var(&o.seed, "seed", 1, "for the choice of mistakes")
	fs.Float64Var(&o.floor, "floor", 0,
		"with -sample: fail only if fewer are killed, in `percent`; 0: fail if one survives")
	fs.StringVar(&o.servers, "servers", "",
		"only write dir/overlay.json for the go command, with the servers that are wrong on purpose, into this `folder`")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	for _, dir := range fs.Args() {
		o.dirs = append(o.dirs, strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(dir), "./"), "/"))
	}
	if o.removals && o.sample == 0 {
		return o, errors.New("-removals needs -sample")
	}
	if o.own && o.sample == 0 && o.changed == "" {
		return o, errors.New("-own needs -sample or -changed")
	}
	if o.changed != "" && o.sample > 0 {
		return o, errors.New("-changed and -sample exclude each other")
	}
	return o, nil
}

// shared is a writer for many goroutines.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

// run returns how many mistakes were not noticed.
func run(ctx context.Context, args []string, out io.Writer) (left int, err error) {
	o, err := parse(args, out)
	if err != nil {
		return 0, err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return 0, err
	}
	if o.servers != "" {
		return 0, writeServers(o.root, o.servers)
	}
	t, err := readTree(ctx, o.root)
	if err != nil {
		return 0, err
	}
	w := &workshop{
		tree: t, reach: map[[2]string][]reached{}, parallel: o.parallel, verbose: o.verbose, own: o.own,
		out: &shared{to: out},
	}
	if w.dir, err = os.MkdirTemp("", "holdfast-mutations-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(w.dir)
	if len(o.dirs) == 0 {
		o.dirs = t.dirs()
	}
	for _, dir := range o.dirs {
		if _, known := t.packages[dir]; !known {
			return 0, fmt.Errorf("%q is no package below %s", dir, o.root)
		}
	}
	switch {
	case o.changed != "":
		return w.ofChange(ctx, o)
	case o.sample > 0:
		return w.ofSample(ctx, o)
	}
	return w.ofTables(ctx, o.dirs)
}

// ofTables proves what stands in the tables of packages.
func (w *workshop) ofTables(ctx context.Context, dirs []string) (left int, err error) {
	entries, err := readTables(w.root, dirs)
	if err != nil {
		return 0, err
	}
	found, missing := findAll(w.root, entries)
	for _, err := range missing {
		fmt.Fprintln(w.out, "NOT THERE:", err)
	}
	left, err = w.proveTables(ctx, found)
	return left + len(missing), err
}

// ofChange proves the tables of the packages that a change touches, and judges mistakes in its lines.
func (w *workshop) ofChange(ctx context.Context, o options) (left int, err error) {
	lines, err := changedSince(ctx, w.root, o.changed)
	if err != nil {
		return 0, err
	}
	var dirs, tables []string
	for _, dir := range o.dirs {
		touched, code := false, false
		for file := range lines {
			touched = touched || packageOf(file) == dir
			code = code || packageOf(file) == dir && !strings.HasSuffix(file, "_test.go")
		}
		if touched {
			tables = append(tables, dir)
		}
		if code && product(dir) {
			dirs = append(dirs, dir)
		}
	}
	if left, err = w.ofTables(ctx, tables); err != nil || len(dirs) == 0 {
		return left, err
	}
	units, err := load(ctx, w.root, patterns(dirs)...)
	if err != nil {
		return left, err
	}
	var all []mutant
	for _, u := range units {
		all = append(all, u.machineMade(func(m mutant) bool { return lines.has(m.source.path, m.line) })...)
	}
	survivors, _, err := w.ofMachine(ctx, o.pick(all, o.most, w.out))
	return left + survivors, err
}

// ofSample judges mistakes anywhere in the product.
func (w *workshop) ofSample(ctx context.Context, o options) (left int, err error) {
	dirs := slices.DeleteFunc(slices.Clone(o.dirs), func(dir string) bool { return !product(dir) })
	units, err := load(ctx, w.root, patterns(dirs)...)
	if err != nil {
		return 0, err
	}
	var all []mutant
	for _, u := range units {
		all = append(all, u.machineMade(func(m mutant) bool { return !o.removals || slices.Contains(removals, m.op) })...)
	}
	left, judged, err := w.ofMachine(ctx, o.pick(all, o.sample, w.out))
	if err != nil || o.floor == 0 {
		return left, err
	}
	if rate := 100 * float64(judged-left) / float64(max(judged, 1)); rate < o.floor {
		fmt.Fprintf(w.out, "%.1f %% killed are fewer than %.1f %%\n", rate, o.floor)
		return left, nil
	}
	return 0, nil
}

func patterns(dirs []string) []string {
	var all []string
	for _, dir := range dirs {
		all = append(all, "./"+dir)
	}
	return all
}
