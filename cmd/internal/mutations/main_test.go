package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func tree() string { return filepath.Join("..", "..", "..") }

// TestPatches keeps the patches of .ci/mutations from rotting: each says what it breaks, applies
// to the tree as it is, and names a test that is there. It does not run the tests.
func TestPatches(t *testing.T) {
	files, err := patchFiles(tree(), nil)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		m, err := readMutation(file)
		if err != nil {
			t.Errorf("%s: %v", patchName(file), err)
			continue
		}
		changed, err := m.apply(tree())
		if err != nil {
			t.Errorf("%s: %v: make the patch again with git diff -U2", m.name, err)
			continue
		}
		for path, text := range changed {
			if now, err := os.ReadFile(filepath.Join(tree(), path)); err == nil && bytes.Equal(now, text) {
				t.Errorf("%s: it changes nothing in %s", m.name, path)
			}
		}
		requireTest(t, m)
	}
}

// requireTest looks for the tests that m names among the sources of the package that it names.
func requireTest(t *testing.T, m mutation) {
	t.Helper()
	at := slices.Index(m.killedBy, "-run")
	if at < 0 || at+1 == len(m.killedBy) {
		t.Errorf("%s: 'killed by' has no -run: name the test", m.name)
		return
	}
	top, _, _ := strings.Cut(m.killedBy[at+1], "/")
	pattern, err := regexp.Compile(top)
	if err != nil {
		t.Errorf("%s: -run: %v", m.name, err)
		return
	}
	found := false
	for _, word := range m.killedBy {
		if !strings.HasPrefix(word, "./") {
			continue
		}
		sources, err := filepath.Glob(filepath.Join(tree(), word, "*_test.go"))
		require.NoError(t, err)
		for _, source := range sources {
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			for _, match := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`).FindAllSubmatch(text, -1) {
				found = found || pattern.Match(match[1])
			}
		}
	}
	if !found {
		t.Errorf("%s: no test matches %s", m.name, strings.Join(m.killedBy, " "))
	}
}

func TestHeader(t *testing.T) {
	const diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
	for _, tc := range []struct{ text, want string }{
		{"# killed by: ./x -run Y\n" + diff, "no '# breaks: …'"},
		{"# breaks: a promise\n" + diff, "no '# killed by: …'"},
		{"# breaks: a promise\n# killed by: -run '^X\n" + diff, "a quote is not closed"},
		{"# breaks: a promise\n# killed by: ./x -run Y\n", "no unified diff"},
		{"# breaks: a promise\n# killed by: ./x -run Y\n" + strings.TrimSuffix(diff, "+b\n"), "lines are missing"},
		{"# breaks: a promise\n# killed by: ./x -run Y\n" + diff, ""},
	} {
		file := filepath.Join(t.TempDir(), "x.patch")
		require.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
		m, err := readMutation(file)
		if tc.want != "" {
			require.ErrorContains(t, err, tc.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"./x", "-run", "Y"}, m.killedBy)
	}
}

func TestShellWords(t *testing.T) {
	words, err := shellWords(` ./server/store -run '^TestA$/b c' -count "1" x''y ''  `)
	require.NoError(t, err)
	require.Equal(t, []string{"./server/store", "-run", "^TestA$/b c", "-count", "1", "xy", ""}, words)
}

// TestApply: hunks are found where the lines have moved to, and nowhere when they have changed.
func TestApply(t *testing.T) {
	const old = "one\ntwo\nthree\ntwo\nfour\n"
	for _, tc := range []struct{ name, diff, want, wrong string }{
		{name: "in place", diff: "@@ -1,2 +1,2 @@\n one\n-two\n+2\n", want: "one\n2\nthree\ntwo\nfour\n"},
		{name: "moved", diff: "@@ -9,2 +9,2 @@\n-three\n+3\n two\n", want: "one\ntwo\n3\ntwo\nfour\n"},
		{name: "nearest", diff: "@@ -5 +5 @@\n-two\n+2\n", want: "one\ntwo\nthree\n2\nfour\n"},
		{name: "two hunks", diff: "@@ -1 +0,0 @@\n-one\n@@ -5 +4 @@\n-four\n+4\n", want: "two\nthree\ntwo\n4\n"},
		{name: "inserted", diff: "@@ -2,0 +3 @@\n+between\n", want: "one\ntwo\nbetween\nthree\ntwo\nfour\n"},
		{name: "changed", diff: "@@ -1,2 +1,2 @@\n one\n-zwei\n+2\n", wrong: "a.txt has changed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := parseDiff(strings.Split("--- a/a.txt\n+++ b/a.txt\n"+strings.TrimSuffix(tc.diff, "\n"), "\n"))
			require.NoError(t, err)
			got, err := files[0].apply([]byte(old))
			if tc.wrong != "" {
				require.ErrorContains(t, err, tc.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, string(got))
		})
	}
}

// TestVerdicts judges one mutation of each kind in a module of its own.
func TestVerdicts(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.mod", "module example\n\ngo 1.26\n")
	write("a.go", "package example\n\nfunc one() int { return 1 }\n\nfunc two() int { return 2 }\n")
	write("a_test.go", "package example\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Fatal()\n\t}\n}\n\n"+
		"func TestTwo(t *testing.T) {\n\tif two() == 1 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestWrong(t *testing.T) { t.Fatal() }\n")
	patch := func(name, test, from, to string) {
		write(".ci/mutations/"+name+".patch", "# breaks: a promise\n# killed by: . -run '^"+test+"$'\n"+
			"--- a/a.go\n+++ b/a.go\n@@ -3 +3 @@\n-"+from+"\n+"+to+"\n")
	}
	patch("a-killed", "TestOne", "func one() int { return 1 }", "func one() int { return 2 }")
	patch("b-survives", "TestTwo", "func two() int { return 2 }", "func two() int { return 3 }")
	patch("c-unbuilt", "TestOne", "func one() int { return 1 }", "func one() int { return two }")
	patch("d-old", "TestOne", "func one() int { return 0 }", "func one() int { return 2 }")
	patch("e-no-test", "TestNone", "func one() int { return 1 }", "func one() int { return 2 }")
	patch("f-wrong", "TestWrong", "func one() int { return 1 }", "func one() int { return 2 }")
	var out bytes.Buffer
	left, err := run(t.Context(), root, nil, 2, false, &out)
	require.NoError(t, err)
	require.Equal(t, 5, left)
	for _, want := range []string{
		`a-killed +killed `, `b-survives +SURVIVED `, `c-unbuilt +does not build `,
		`d-old +does not apply `, `e-no-test +no such test `, `f-wrong +test fails without the patch `,
		`6 mutations, 1 killed, 5 not`,
	} {
		require.Regexp(t, `(?m)^`+want, out.String())
	}
	text, err := os.ReadFile(filepath.Join(root, "a.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), "return 1", "the tree was touched")
}
