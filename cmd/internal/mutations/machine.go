package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"
)

// maxImporters bounds the packages whose tests judge the mistakes of a package that they import, beside its own tests.
const maxImporters = 3

// trial is a machine-made mistake before its judges.
type trial struct {
	mutant
	id      string
	verdict verdict
	by      string // the test that killed it
	unseen  bool   // no test runs the line
}

// judge is the tests of a package, under the race detector or not.
type judge struct {
	pkg  string
	race bool
}

// judges reports whether a mistake is asked about: the race detector judges those about locks.
func (j judge) judges(t *trial) bool {
	return t.verdict == survived && (!j.race || t.op == lockNotTaken)
}

// judgeMachineMade runs the tests that reach the mistakes of one package until one of them fails.
func (w *workshop) judgeMachineMade(ctx context.Context, dir string, trials []*trial) error {
	judges := []judge{{pkg: dir}}
	for _, other := range w.judgesOf(dir) {
		judges = append(judges, judge{pkg: other})
	}
	judges = append(judges, judge{dir, true})
	todo := map[int]*trial{}
	mutants := map[int]mutant{}
	for i, t := range trials {
		t.verdict, t.unseen = survived, true
		todo[i+1] = t
		if choosable(t.mutant) {
			mutants[i+1] = t.mutant
		}
	}
	if len(todo) == 0 {
		return nil
	}
	b, err := newBuild(ctx, w.root, w.dir, mutants)
	if err != nil {
		return err
	}
	for number, t := range sorted(todo) {
		if b.unbuilt[number] != "" || !choosable(t.mutant) {
			t.verdict = notBuilt
		}
	}
	for _, j := range judges {
		if err := w.judgeBy(ctx, b, dir, j, todo); err != nil {
			return err
		}
	}
	return nil
}

// judgesOf are the packages whose tests are asked after those of dir itself: nearest first.
func (w *workshop) judgesOf(dir string) []string {
	var judges []string
	for _, other := range w.importers(dir) {
		if top, _, _ := strings.Cut(other, "/"); !w.own && top != "bench" && top != "jepsen" &&
			!strings.HasSuffix(other, "test") && other != "cmd/holdfast" {
			judges = append(judges, other)
		}
	}
	for _, other := range w.dirs() { // tests of a package that stand in a folder below, as in server/store/storetest
		of := path.Dir(other)
		if strings.HasSuffix(other, "test") && strings.Contains(of, "/") && strings.HasPrefix(dir+"/", of+"/") &&
			slices.Contains(w.deps[other], w.packages[dir].ImportPath) {
			judges = append(judges, other)
		}
	}
	far := func(other string) int {
		shared := 0
		for i := 0; i < min(len(dir), len(other)) && dir[i] == other[i]; i++ {
			shared++
		}
		return -shared
	}
	slices.SortStableFunc(judges, func(a, b string) int { return far(a) - far(b) })
	return judges[:min(len(judges), maxImporters)]
}

// judgeBy has a judge look at the mistakes that are left.
func (w *workshop) judgeBy(ctx context.Context, b *build, dir string, j judge, todo map[int]*trial) error {
	var numbers []int
	for number, t := range sorted(todo) {
		if j.judges(t) {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	reach, err := w.reachOf(ctx, j.pkg, dir)
	if err != nil {
		return err
	}
	run, sound := testRun{}, reach
	if len(reach) > 0 {
		var flags []string
		if j.race {
			flags = []string{"-race"}
		}
		binary, err := b.binary(ctx, "./"+j.pkg, flags...)
		if err != nil {
			return err
		}
		run = testRun{root: w.root, pkg: "./" + j.pkg, binary: binary, overlay: b.overlay, unlimited: j.race}
		sound = w.sound(ctx, run, reach)
	}
	w.each(ctx, len(numbers), func(i int) {
		t := todo[numbers[i]]
		seen := w.judge(ctx, run, sound, t, numbers[i])
		t.unseen = t.unseen && !seen
		w.printKilled(t)
	})
	return ctx.Err()
}

// sound leaves out the tests that fail though no mistake is chosen: those that count allocations, say.
func (w *workshop) sound(ctx context.Context, run testRun, reach []reached) []reached {
	run.tests, run.limit, run.goOn = "^(Test|Fuzz|Example)", 15*time.Minute, true
	was, out := run.run(ctx)
	if was == passed {
		return reach
	}
	left := slices.DeleteFunc(slices.Clone(reach), func(r reached) bool { return unsound(r.Test, was, string(out)) })
	fmt.Fprintf(w.out, "%s: %d of %d tests do not pass without a mistake, and judge none\n", run.pkg,
		len(reach)-len(left), len(reach))
	return left
}

// unsound reports whether a test failed in a run of all, or was under way when the run had lasted too long.
func unsound(test string, was outcome, out string) bool {
	if strings.Contains(out, "--- FAIL: "+test+" ") {
		return true
	}
	ended := strings.Contains(out, "--- PASS: "+test+" ") || strings.Contains(out, "--- SKIP: "+test+" ")
	return was == hung && strings.Contains(out, "=== RUN   "+test+"\n") && !ended
}

// Tests run together up to this time, then one by one from the quickest to the slowest, up to the other one: longer for
// tests of the package itself than for those of packages that import it.
const (
	togetherMillis = 1500
	ownMillis      = 20_000
	othersMillis   = 5_000
)

// judge runs tests with a mistake until one fails, and reports whether one of them runs the line.
func (w *workshop) judge(ctx context.Context, run testRun, reach []reached, t *trial, number int) (seen bool) {
	run.number = number
	most := int64(othersMillis)
	if run.pkg == "./"+t.source.pkg() {
		most = ownMillis
	}
	var quick []string
	var spent int64
	try := func(tests []string, millis int64) bool {
		run.tests = "^(" + strings.Join(tests, "|") + ")$"
		run.limit = 10*time.Second + 8*time.Duration(millis)*time.Millisecond
		was, out := run.run(ctx)
		if ctx.Err() != nil || was == passed || was == noTest {
			return false
		}
		t.verdict, t.by = killed, tests[0]
		if was == hung {
			t.by = "none of " + strings.Join(tests, ", ") + " ends"
		} else if name := failedTest(out); name != "" {
			t.by = name
		}
		t.by = run.pkg + " " + t.by
		return true
	}
	i := 0
	for ; i < len(reach) && spent < togetherMillis; i++ {
		if reach[i].reaches(t.mutant) {
			seen = true
			quick = append(quick, reach[i].Test)
			spent += reach[i].Millis / 4 // most of a quick test is the start of its process
		}
	}
	if len(quick) > 0 && try(quick, 4*spent) {
		return seen
	}
	for ; i < len(reach) && spent < most; i++ {
		if reach[i].reaches(t.mutant) {
			seen = true
			spent += reach[i].Millis
			if try([]string{reach[i].Test}, reach[i].Millis) {
				return seen
			}
		}
	}
	return seen
}

// failedTest is the first test that an output says has failed.
func failedTest(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			return name
		}
	}
	return ""
}

// product reports whether a package is part of what people run: tools of the tests are not.
func product(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	switch {
	case top == "bench", top == "jepsen", strings.HasPrefix(dir, "server/clients"), strings.HasSuffix(dir, "test"):
		return false
	case dir == "cmd/internal/mdwrap", strings.Contains(dir, "packaging"):
		return false
	}
	return path.Base(dir) != "memdisk"
}

// printKilled says which test killed a mistake, with -v.
func (w *workshop) printKilled(t *trial) {
	if w.verbose && t.verdict == killed {
		fmt.Fprintf(w.out, "killed: %s:%d, %s, by %s\n", t.source.path, t.line, t.op, t.by)
	}
}

// printSurvivors prints what no test has noticed, each as an entry for the package's table.
func (w *workshop) printSurvivors(trials []*trial) {
	for _, t := range trials {
		if t.verdict == survived {
			fmt.Fprintf(w.out, "\nSURVIVED: %s:%d, %s%s\n%s", t.source.path, t.line, t.op,
				map[bool]string{true: " (no test runs the line)"}[t.unseen], t.asEntry())
		}
	}
}

// count sums the verdicts up.
func (w *workshop) count(trials []*trial) (left, judged int) {
	var unbuilt, unreached int
	for _, t := range trials {
		switch {
		case t.verdict == notBuilt:
			unbuilt++
			continue
		case t.verdict == survived:
			left++
			if t.unseen {
				unreached++
			}
		}
		judged++
	}
	if judged > 0 {
		fmt.Fprintf(w.out,
			"\n%d machine-made mistakes: %d killed (%.0f %%), %d survived, %d of them in lines that no test runs; %d more do "+
				"not compile\n",
			judged, judged-left, 100*float64(judged-left)/float64(judged), left, unreached, unbuilt)
	}
	return left, judged
}

// asEntry is a mistake in the form of a table, with as many lines as tell it from others in the function.
func (m mutant) asEntry() string {
	text := m.source.text
	start, end := m.edits[0].start, m.edits[0].end
	for _, e := range m.edits {
		start, end = min(start, e.start), max(end, e.end)
	}
	f := m.function()
	lower, upper := m.source.offset(f.Pos()), m.source.offset(f.End())
	lineStart := func(at int) int { return strings.LastIndexByte(string(text[:at]), '\n') + 1 }
	lineEnd := func(at int) int { return at + strings.IndexByte(string(text[at:])+"\n", '\n') }
	from, to := lineStart(start), lineEnd(end)
	for {
		e := entry{accepted: "?", table: m.source.pkg() + "/" + tableName}
		var inside []edit
		for _, x := range m.edits {
			inside = append(inside, edit{x.start - from, x.end - from, x.text})
		}
		c := change{anchor: m.fn, old: trimmedLines(text[from:to]), new: trimmedLines(apply(text[from:to], inside))}
		e.changes = []change{c}
		if _, _, err := findOnce(text[lower:upper], strings.Join(c.old, "\n")); err == nil || from <= lower && to >= upper {
			var out strings.Builder
			e.write(&out)
			return out.String()
		}
		from, to = lineStart(max(from-1, lower)), lineEnd(min(to+1, upper))
	}
}

func trimmedLines(text []byte) []string {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// pick chooses n of the mistakes.
func (o options) pick(all []mutant, n int, w io.Writer) []mutant {
	if len(all) <= n {
		return all
	}
	fmt.Fprintf(w, "%d of %d machine-made mistakes, by seed %d\n", n, len(all), o.seed)
	rng := rand.New(rand.NewPCG(o.seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// ofMachine judges mistakes, package by package. Those that a table has are left out: accepted, or proved there.
func (w *workshop) ofMachine(ctx context.Context, all []mutant) (left, judged int, err error) {
	byDir := map[string][]*trial{}
	for _, m := range all {
		id, err := m.identity()
		if err != nil || m.changesNothing() {
			continue // it is no Go, or no mistake
		}
		dir := m.source.pkg()
		if !slices.ContainsFunc(byDir[dir], func(t *trial) bool { return t.id == id }) {
			byDir[dir] = append(byDir[dir], &trial{mutant: m, id: id})
		}
	}
	var trials []*trial
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		entries, err := readTables(w.root, []string{dir})
		if err != nil {
			return 0, 0, err
		}
		found, _ := findAll(w.root, entries)
		known := map[string]bool{}
		for _, h := range found {
			if id, err := h.identity(); err == nil {
				known[id] = true
			}
		}
		mine := slices.DeleteFunc(byDir[dir], func(t *trial) bool { return known[t.id] })
		begin := time.Now()
		if err := w.judgeMachineMade(ctx, dir, mine); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", dir, err)
		}
		fmt.Fprintf(w.out, "%-24s %4d mistakes, %.0f s\n", dir, len(mine), time.Since(begin).Seconds())
		w.printSurvivors(mine)
		trials = append(trials, mine...)
	}
	left, judged = w.count(trials)
	return left, judged, nil
}
