// Command mutations applies the mistakes in .ci/mutations one by one to a copy of the tree
// and expects the test that each names to fail: a mistake that no test notices
// is a promise that nothing holds. .ci/mutations/README.md has the format.
//
// The copy is an overlay of the go command, so the tree is never touched and the
// build cache is shared. Start at run.go:judge.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	parallel := flag.Int("parallel", 2, "tests that run at a time")
	root := flag.String("root", ".", "root of the tree")
	verbose := flag.Bool("v", false, "print what go test said of each mutation that is not killed")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: .ci/mutations/run [flags] [pattern…], as in .ci/mutations/run 'server-store-*'")
		flag.PrintDefaults()
	}
	flag.Parse()
	left, err := run(ctx, *root, flag.Args(), *parallel, *verbose, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(2)
	case left > 0:
		os.Exit(1)
	}
}

// run judges the mutations that match one of the patterns, all without a pattern. It
// returns how many were not killed.
func run(ctx context.Context, root string, patterns []string, parallel int, verbose bool, w io.Writer) (left int, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return 0, err
	}
	files, err := patchFiles(root, patterns)
	if err != nil {
		return 0, err
	}
	r, err := newRunner(root)
	if err != nil {
		return 0, err
	}
	rows := make([]chan row, len(files))
	for i := range rows {
		rows[i] = make(chan row, 1)
	}
	go func() { // in the order in which the rows are printed
		slots := make(chan struct{}, max(parallel, 1))
		for i, file := range files {
			slots <- struct{}{}
			go func() {
				rows[i] <- r.row(ctx, file)
				<-slots
			}()
		}
	}()
	width := 0
	for _, file := range files {
		width = max(width, len(patchName(file)))
	}
	for i := range rows {
		row := <-rows[i]
		if row.verdict != killed {
			left++
		}
		row.print(w, width, verbose)
	}
	fmt.Fprintf(w, "%d mutations, %d killed, %d not\n", len(files), len(files)-left, left)
	return left, ctx.Err()
}

// patchFiles lists the patches whose names match.
func patchFiles(root string, patterns []string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(root, ".ci", "mutations", "*.patch"))
	if err != nil || len(patterns) == 0 {
		return all, err
	}
	var files []string
	for _, file := range all {
		for _, p := range patterns {
			ok, err := path.Match(strings.TrimSuffix(path.Base(p), ".patch"), patchName(file))
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			if ok {
				files = append(files, file)
				break
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no patch matches %s", strings.Join(patterns, " "))
	}
	return files, nil
}

func patchName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".patch") }

// row is a line of the table.
type row struct {
	mutation
	verdict verdict
	detail  string
	took    time.Duration
}

func (r *runner) row(ctx context.Context, file string) row {
	begin := time.Now()
	m, err := readMutation(file)
	if err != nil {
		return row{mutation: mutation{name: patchName(file)}, verdict: notApplied, detail: err.Error()}
	}
	v, detail := r.judge(ctx, m)
	return row{m, v, detail, time.Since(begin)}
}

func (r row) print(w io.Writer, width int, verbose bool) {
	fmt.Fprintf(w, "%-*s  %-14s  %5.1fs  breaks: %s; killed by: %s\n",
		width, r.name, r.verdict, r.took.Seconds(), r.breaks, strings.Join(r.killedBy, " "))
	if r.verdict == notApplied || verbose && r.detail != "" {
		fmt.Fprintln(w, "    "+strings.ReplaceAll(strings.TrimSpace(r.detail), "\n", "\n    "))
	}
}
