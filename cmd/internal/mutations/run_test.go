package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module makes a module in a folder of its own.
func module(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs tests of a module")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return root
}

// mutationsIn runs the command as a user does.
func mutationsIn(t *testing.T, root string, args ...string) (left int, out string) {
	t.Helper()
	var text bytes.Buffer
	left, err := run(t.Context(), append([]string{"-root", root}, args...), &text)
	require.NoError(t, err, text.String())
	return left, text.String()
}

// shapes has functions of all shapes that a choice of mistakes has to get along with.
const shapes = `package shapes

const limit = 2

type set[T comparable] struct{ m map[T]bool }

func (s *set[T]) add(_ string, all ...T) (n int) {
	for _, x := range all {
		if !s.m[x] {
			n++
		}
		s.m[x] = true
	}
	return n
}

func first[T any, U ~[]T](list U) T { return list[0] }

type nothing struct{}

func (nothing) one(int, string) (int, error) { return 1, nil }

var log []string

func init() { log = append(log, "init") }

func note(string) { log = append(log, "note") }

func saved() (err error) {
	defer recovered(&err)
	panic("x")
}

func recovered(err *error) {
	if recover() != nil {
		*err = nil
		log = append(log, "recovered")
	}
}

func unlooked() int { return 7 }

func broken() int { return 3 }
`

const shapesTest = `package shapes

import "testing"

func TestAdd(t *testing.T) {
	s := &set[int]{map[int]bool{}}
	if n := s.add("", 1, 2, 2); n != limit || len(s.m) != 2 {
		t.Fatal(n)
	}
}

func TestOthers(t *testing.T) {
	note("")
	n, err := nothing{}.one(0, "")
	if first([]int{4, 5}) != 4 || n != 1 || err != nil || saved() != nil {
		t.Fatal()
	}
	if len(log) != 3 || log[0] != "init" || log[1] != "note" {
		t.Fatal(log)
	}
}

func TestUnlooked(t *testing.T) { unlooked() }

func TestBroken(t *testing.T) { t.Fatal(broken()) }
`

const shapesTable = `# breaks: each counts once
# killed by: TestAdd
set.add
- if !s.m[x] {
+ if s.m[x] {

# breaks: a type argument
# killed by: TestOthers
first
- list[0]
+ list[1]

# breaks: arguments without names
# killed by: TestOthers
nothing.one
- 1, nil
+ 2, nil

# breaks: init
# killed by: TestOthers
init
- "init"
+ "begin"

# breaks: an argument without use
# killed by: TestOthers
note
- "note"
+ "no"

# breaks: what recovers, which cannot be chosen
# killed by: TestOthers
recovered
- != nil {
+ == nil {

# breaks: a constant, which cannot be chosen
# killed by: TestAdd
limit
- 2
+ 3

# breaks nothing: all the same
set.add
- n++
+ n += 1
`

// TestVerdicts: what is not killed is told and leaves a failure; the tree is not touched.
func TestVerdicts(t *testing.T) {
	root := module(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n", "shapes/shapes.go": shapes, "shapes/shapes_test.go": shapesTest,
		"shapes/" + tableName: shapesTable,
	})
	left, out := mutationsIn(t, root)
	require.Zero(t, left, out)
	require.Contains(t, out, "7 mistakes in tables: 7 killed, 0 not; 1 accepted")

	table := filepath.Join(root, "shapes", tableName)
	entry := func(test, anchor, was, is string) string {
		return "\n# breaks: a\n# killed by: " + test + "\n" + anchor + "\n- " + was + "\n+ " + is + "\n"
	}
	require.NoError(t, os.WriteFile(table, []byte(shapesTable+
		entry("TestUnlooked", "unlooked", "7", "8")+
		entry("TestUnlooked", "broken", "3", "three")+
		entry("TestNone", "unlooked", "7", "9")+
		entry("TestBroken", "unlooked", "7", "10")+
		entry("TestAdd", "unlooked", "8", "9")), 0o644))
	left, out = mutationsIn(t, root)
	require.Equal(t, 5, left, out)
	for _, want := range []string{
		`SURVIVED +[\d.]+s +shapes/mutations.txt:48 unlooked: a; killed by: ./shapes TestUnlooked`,
		`does not build +[\d.]+s +shapes/mutations.txt:54 broken`, `undefined: three`,
		`no such test +[\d.]+s +shapes/mutations.txt:60`,
		`test fails without the mistake +[\d.]+s +shapes/mutations.txt:66`,
		`NOT THERE: shapes/mutations.txt:72: unlooked: "8" stands there 0 times`,
		`11 mistakes in tables: 7 killed, 4 not`,
	} {
		require.Regexp(t, want, out)
	}

	text, err := os.ReadFile(filepath.Join(root, "shapes", "shapes.go"))
	require.NoError(t, err)
	require.Equal(t, shapes, string(text), "the tree was touched")
}

const halves = `package halves

import "sync"

var mu sync.Mutex
var n int

// Half has a limit that no test looks at.
func Half(x int) int {
	if x >= 10 {
		return 6
	}
	return x / 2
}

func Count() {
	mu.Lock()
	defer mu.Unlock()
	n++
}

func unrun() int { return 1 }
`

const halvesTest = `package halves

import (
	"sync"
	"testing"
)

func TestHalf(t *testing.T) {
	if Half(4) != 2 || Half(100) != 6 {
		t.Fatal()
	}
}

func TestCount(t *testing.T) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(Count)
	}
	wg.Wait()
	if n == 0 {
		t.Fatal()
	}
}
`

const userTest = `package user

import (
	"testing"

	"example.com/m/halves"
)

func TestUser(t *testing.T) {
	if halves.Half(10) != 6 || halves.Half(12) != 6 {
		t.Fatal()
	}
}
`

// TestMachineMade: tests of the package judge first, then those of packages that import it; what survives is
// printed as an entry, and is accepted as soon as a table has it. With -own the package's tests judge alone.
func TestMachineMade(t *testing.T) {
	root := module(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n", "halves/halves.go": halves, "halves/halves_test.go": halvesTest,
		"user/user.go": "package user\n\nimport _ \"example.com/m/halves\"\n", "user/user_test.go": userTest,
	})
	left, out := mutationsIn(t, root, "-sample", "1000", "-v", "./halves")
	require.Contains(t, out, "killed: halves/halves.go:10, branch emptied, by ./halves TestHalf")
	require.Contains(t, out, "killed: halves/halves.go:10, comparison changed, by ./halves TestHalf")
	require.Contains(t, out, "killed: halves/halves.go:10, constant off by one, by ./user TestUser",
		"11 in the place of 10")
	survivor := "# breaks nothing: ?\nHalf\n- if x >= 10 {\n+ if x >= 9 {\n"
	require.Contains(t, out, "SURVIVED: halves/halves.go:10, constant off by one\n"+survivor)
	require.Contains(t, out, "SURVIVED: halves/halves.go:22, constant off by one (no test runs the line)")
	require.NotContains(t, out, "SURVIVED: halves/halves.go:17, lock not taken")
	require.Regexp(t, `\d+ machine-made mistakes: \d+ killed \(\d+ %\), `, out)
	require.NotZero(t, left)

	_, out = mutationsIn(t, root, "-sample", "1000", "-removals", "-v", "./halves")
	require.Contains(t, out, "killed: halves/halves.go:10, branch emptied, by ./halves TestHalf")
	require.NotContains(t, out, "halves.go:10, comparison changed")

	_, out = mutationsIn(t, root, "-sample", "1000", "-own", "./halves")
	require.Contains(t, out, "SURVIVED: halves/halves.go:10, constant off by one\n"+survivor)
	require.Contains(t, out, "+ if x >= 11 {", "no test of ./user is asked")

	table := strings.Replace(survivor, "?", "nine is ten here", 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "halves", tableName), []byte(table), 0o644))
	fewer, out := mutationsIn(t, root, "-sample", "1000", "./halves")
	require.Equal(t, left-1, fewer, out)
	require.NotContains(t, out, "if x >= 9")
	none, _ := mutationsIn(t, root, "-sample", "1000", "-floor", "50", "./halves")
	require.Zero(t, none)
	some, _ := mutationsIn(t, root, "-sample", "1000", "-floor", "99", "./halves")
	require.Equal(t, fewer, some)
}

// TestJudges: tests in a room below judge too, of a package in a room beside as well; helpers of tests do not.
// TestUnsound: who passed before a run lasted too long judges.
func TestUnsound(t *testing.T) {
	const out = "=== RUN   TestA\n--- PASS: TestA (0.1s)\n=== RUN   TestB\n--- FAIL: TestB (0.1s)\n" +
		"=== RUN   TestC\n--- SKIP: TestC (0.1s)\n=== RUN   TestD\npanic: test timed out after 15m0s"
	for test, want := range map[string]bool{"TestA": false, "TestB": true, "TestC": false, "TestD": true, "TestE": false} {
		if unsound(test, hung, out) != want {
			t.Error(test)
		}
	}
	if unsound("TestD", failed, out) {
		t.Error("it did not fail")
	}
}

func TestJudges(t *testing.T) {
	const test = "package xtest\n\nimport _ \"example.com/m/top/halves\"\n"
	root := module(t, map[string]string{
		"go.mod":                  "module example.com/m\n\ngo 1.26\n",
		"top/halves/halves.go":    "package halves\n\nimport _ \"example.com/m/top/halves/deep\"\n",
		"top/halves/deep/deep.go": "package deep\n", "top/halves/halvestest/x_test.go": test, "top/helptest/x_test.go": test,
		"other/x_test.go": test,
	})
	tree, err := readTree(t.Context(), root)
	require.NoError(t, err)
	w := &workshop{tree: tree}
	require.Equal(t, []string{"top/halves/halvestest", "other"}, w.judgesOf("top/halves"))
	require.Equal(t, []string{"top/halves/halvestest"}, w.judgesOf("top/halves/deep"))
	w.own = true
	require.Equal(t, []string{"top/halves/halvestest"}, w.judgesOf("top/halves"))
}

// TestChange: mistakes are made in the lines that a revision does not have, in committed, changed and new files.
func TestChange(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	root := module(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n", "halves/halves.go": halves,
		"halves/halves_test.go": halvesTest,
	})
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q", "-b", "main")
	git("add", "go.mod", "halves")
	git("commit", "-q", "-m", "a")
	left, out := mutationsIn(t, root, "-changed", "main", "-v")
	require.Zero(t, left)
	require.NotContains(t, out, "machine-made")

	changed := strings.Replace(halves, "return x / 2", "return (x + 1) / 2", 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "halves", "halves.go"), []byte(changed), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "halves", "new.go"),
		[]byte("package halves\n\nfunc added() bool { return true }\n"), 0o644))
	left, out = mutationsIn(t, root, "-changed", "main", "-v")
	require.Contains(t, out,
		"SURVIVED: halves/halves.go:13, operand dropped\n# breaks nothing: ?\nHalf\n- return (x + 1) / 2\n+ return (x) / 2\n")
	require.Contains(t, out, "SURVIVED: halves/new.go:3, constant turned (no test runs the line)")
	require.NotContains(t, out, "halves.go:10")
	require.NotZero(t, left)
}

// TestNewLines reads the heads of hunks.
func TestNewLines(t *testing.T) {
	for line, want := range map[string]span{
		"@@ -3,2 +5,4 @@ func f() {": {5, 8}, "@@ -3 +3 @@": {3, 3}, "@@ -7,2 +6,0 @@": {6, 6}, "@@ -0,0 +1,9 @@": {1, 9},
	} {
		got, ok := newLines(line)
		require.True(t, ok, line)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{"--- a/a.go", "+@@ b", "@@ -a +b @@"} {
		_, ok := newLines(line)
		require.False(t, ok, line)
	}
}
