package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// verdict is what became of a mistake.
type verdict string

const (
	killed       verdict = "killed"
	survived     verdict = "SURVIVED"
	testMissing  verdict = "no such test"
	notBuilt     verdict = "does not build"
	failsWithout verdict = "test fails without the mistake"
)

// workshop has what proofs share.
type workshop struct {
	*tree
	dir      string                  // for builds; it ends with the run
	reach    map[[2]string][]reached // by the package of the tests and the one that they run
	parallel int
	verbose  bool
	own      bool // machine-made mistakes are judged by the tests of their package and of folders below it alone
	out      io.Writer
}

// each calls f for the numbers below n, several at a time, until ctx ends.
func (w *workshop) each(ctx context.Context, n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(w.parallel, 1))
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			f(i)
			<-slots
		})
	}
	wg.Wait()
}

// handMade is a mistake of a table in the tree.
type handMade struct {
	entry
	mutant
	verdict verdict
	detail  string
	took    time.Duration
}

// findAll finds the mistakes of tables in the tree; the errors are of those that are not there.
func findAll(root string, entries []entry) (found []*handMade, missing []error) {
	files := map[string][]*sourceFile{}
	for _, e := range entries {
		dir := packageOf(e.table)
		if files[dir] == nil {
			var err error
			if files[dir], err = parsePackage(root, dir); err != nil {
				missing = append(missing, err)
				continue
			}
		}
		m, err := e.find(files[dir])
		if err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", e.name(), err))
			continue
		}
		found = append(found, &handMade{entry: e, mutant: m})
	}
	return found, missing
}

// proveTables runs for each mistake of the tables the test that it names, which must fail, and reports how many
// mistakes were not killed.
func (w *workshop) proveTables(ctx context.Context, all []*handMade) (left int, err error) {
	todo := slices.DeleteFunc(slices.Clone(all), func(h *handMade) bool { return h.accepted != "" })
	many := map[int]mutant{}
	for i, h := range todo {
		if choosable(h.mutant) {
			many[i+1] = h.mutant
		}
	}
	b, err := newBuild(ctx, w.root, w.dir, many)
	if err != nil {
		return 0, err
	}
	binaries, broken := w.binaries(ctx, b, todo)
	w.each(ctx, len(todo), func(i int) {
		begin := time.Now()
		w.judgeTable(ctx, b, binaries, broken, todo[i], i+1)
		todo[i].took = time.Since(begin)
		todo[i].print(w.out, w.verbose)
	})
	for _, h := range todo {
		if h.verdict != killed {
			left++
		}
	}
	fmt.Fprintf(w.out, "%d mistakes in tables: %d killed, %d not; %d accepted\n",
		len(todo), len(todo)-left, left, len(all)-len(todo))
	return left, ctx.Err()
}

// binaries builds the tests that the mistakes name, and runs each once without a mistake; broken has
// the tests that fail so.
func (w *workshop) binaries(ctx context.Context, b *build, todo []*handMade) (binaries map[string]string,
	broken map[string]verdict,
) {
	binaries, broken = map[string]string{}, map[string]verdict{}
	var packages, tests []string
	for _, h := range todo {
		if !slices.Contains(packages, h.killedBy[0]) {
			packages = append(packages, h.killedBy[0])
		}
		if key := strings.Join(h.killedBy, " "); !slices.Contains(tests, key) {
			tests = append(tests, key)
		}
	}
	var mu sync.Mutex
	w.each(ctx, len(packages), func(i int) {
		file, err := b.binary(ctx, packages[i])
		if err != nil {
			fmt.Fprintln(w.out, err)
		}
		mu.Lock()
		binaries[packages[i]] = file
		mu.Unlock()
	})
	w.each(ctx, len(tests), func(i int) {
		killedBy := strings.Fields(tests[i])
		was, out := w.testRun(b, binaries[killedBy[0]], killedBy, 0).run(ctx)
		if was == passed {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		broken[tests[i]] = failsWithout
		if was == noTest {
			broken[tests[i]] = testMissing
		}
		fmt.Fprintf(w.out, "%s: %s\n%s\n", tests[i], broken[tests[i]], lastLines(out))
	})
	return binaries, broken
}

// tableTries is how often a test is run to notice a mistake: goroutines take another order each time.
const tableTries = 3

// tableLimit ends a test that a mistake makes hang, which then counts as killed.
const tableLimit = 60 * time.Second

func (w *workshop) testRun(b *build, binary string, killedBy []string, number int) testRun {
	return testRun{
		root: w.root, pkg: killedBy[0], binary: binary, tests: runPattern(killedBy[1]), args: killedBy[2:],
		overlay: b.overlay, number: number, limit: tableLimit,
	}
}

// runPattern is the argument for -run of a test as a table names it: TestA, TestA/part, or TestA|TestB.
func runPattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^(" + p + ")$"
	}
	return strings.Join(parts, "/")
}

func (w *workshop) judgeTable(ctx context.Context, b *build, binaries map[string]string, broken map[string]verdict,
	h *handMade, number int,
) {
	if v, is := broken[strings.Join(h.killedBy, " ")]; is {
		h.verdict = v
		return
	}
	if why := b.unbuilt[number]; why != "" {
		h.verdict, h.detail = notBuilt, why
		return
	}
	binary := binaries[h.killedBy[0]]
	if !choosable(h.mutant) {
		dir, err := os.MkdirTemp(w.dir, "alone-")
		if err == nil {
			defer os.RemoveAll(dir)
			b, err = alone(w.root, dir, h.mutant)
		}
		if err == nil {
			binary, err = b.binary(ctx, h.killedBy[0])
		}
		if err != nil {
			h.verdict, h.detail = notBuilt, err.Error()
			return
		}
	}
	was, out := passed, []byte(nil)
	for try := 0; try < tableTries && was == passed; try++ {
		was, out = w.testRun(b, binary, h.killedBy, number).run(ctx)
	}
	switch was {
	case failed, hung:
		h.verdict = killed
	case noTest:
		h.verdict = testMissing
	default:
		h.verdict, h.detail = survived, string(lastLines(out))
	}
}

func (h *handMade) print(w io.Writer, verbose bool) {
	if h.verdict == killed && !verbose {
		return
	}
	detail := ""
	if h.verdict != killed && h.detail != "" {
		detail = "    " + strings.ReplaceAll(strings.TrimSpace(h.detail), "\n", "\n    ") + "\n"
	}
	fmt.Fprintf(w, "%-14s %5.1fs  %s %s: %s; killed by: %s\n%s",
		h.verdict, h.took.Seconds(), h.entry.name(), h.anchor(), h.breaks, strings.Join(h.killedBy, " "), detail)
}

// lastLines are the lines of an output that say why it ended.
func lastLines(out []byte) []byte {
	const most = 2000
	return out[max(len(out)-most, 0):]
}
