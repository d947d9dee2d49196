package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTables keeps the tables of the tree from rotting: each mistake says what it breaks, its text stands once in the
// declaration that it names, it is Go, it changes something, and its test is there. No test of theirs is run.
func TestTables(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	tables, err := filepath.Glob(filepath.Join(root, "*", tableName))
	require.NoError(t, err)
	for _, below := range []string{"*/*", "*/*/*", "*/*/*/*"} {
		more, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(below), tableName))
		require.NoError(t, err)
		tables = append(tables, more...)
	}
	require.NotEmpty(t, tables)
	var dirs []string
	for _, table := range tables {
		dir, err := filepath.Rel(root, filepath.Dir(table))
		require.NoError(t, err)
		dirs = append(dirs, filepath.ToSlash(dir))
	}
	entries, err := readTables(root, dirs)
	require.NoError(t, err)
	found, missing := findAll(root, entries)
	for _, err := range missing {
		t.Errorf("%v: write the entry anew, or delete it if the mistake cannot be made any more", err)
	}
	seen := map[string]string{}
	for _, h := range found {
		id, err := h.identity()
		require.NoError(t, err)
		if twin := seen[id]; twin != "" {
			t.Errorf("%s is the same mistake as %s", h.entry.name(), twin)
		}
		seen[id] = h.entry.name()
		if h.accepted == "" {
			requireTest(t, root, h.entry)
		}
	}
}

// TestServers keeps the table of servers that are wrong on purpose from rotting: each edit has its place, and can be one
// of many in a build.
func TestServers(t *testing.T) {
	servers, err := readServers(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, s := range servers {
		require.NotEmpty(t, s.name)
		require.False(t, names[s.name], s.name)
		names[s.name] = true
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// requireTest looks for the test that e names among the sources of its package.
func requireTest(t *testing.T, root string, e entry) {
	t.Helper()
	top, _, _ := strings.Cut(e.killedBy[1], "/")
	pattern, err := regexp.Compile(runPattern(top))
	if err != nil {
		t.Errorf("%s: %v", e.name(), err)
		return
	}
	sources, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(e.killedBy[0]), "*_test.go"))
	require.NoError(t, err)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			if pattern.Match(match[1]) {
				return
			}
		}
	}
	t.Errorf("%s: no test matches %s", e.name(), strings.Join(e.killedBy, " "))
}

const sample = `package a

// two is a limit.
const two = 2

type queue[T any] struct{ items []T }

func (q *queue[T]) take(n int) (rest []T) {
	for n > 0 { // as long as asked
		n--
		q.items = q.items[1:]
	}
	n = 0
	return q.items
}

func take(int) int { return two }
`

func parseSample(t *testing.T) []*sourceFile {
	t.Helper()
	f, err := parseSource("a/a.go", []byte(sample))
	require.NoError(t, err)
	return []*sourceFile{f}
}

// TestEntries: an entry is found by declaration and text, wherever the lines are and however they are indented.
func TestEntries(t *testing.T) {
	const head = "# breaks: a promise\n# killed by: TestA\n"
	for _, c := range []struct{ name, entry, want string }{
		{"part of a line, without its comment", head + "queue.take\n- n > 0\n+ n >= 0\n", "for n >= 0 { // as long as asked"},
		{"several lines", head + "queue.take\n- n--\n- q.items = q.items[1:]\n+ n -= 2\n", "n -= 2\n\t}"},
		{"a line less", head + "queue.take\n- q.items = q.items[1:]\n", "n--\n\t\t\n"},
		{"a constant", head + "two\n- const two = 2\n+ const two = 3\n", "const two = 3"},
		{"a file", head + "a.go\n- package a\n+ package a\n+\n+ import _ \"os\"\n", "package a\n\nimport _ \"os\""},
		{"two declarations", head + "queue.take\n- n = 0\n+ n = 1\ntake\n- two\n+ 1\n", "func take(int) int { return 1 }"},
		{"two places", head + "queue.take\n- n > 0\n+ n > 1\n- n = 0\n+ n = 1\n", "n = 1\n\treturn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries, err := parseTable("a/"+tableName, c.entry)
			require.NoError(t, err)
			require.Len(t, entries, 1)
			require.Equal(t, []string{"./a", "TestA"}, entries[0].killedBy)
			m, err := entries[0].find(parseSample(t))
			require.NoError(t, err)
			require.Contains(t, string(apply(m.source.text, m.edits)), c.want)
			var again strings.Builder
			entries[0].write(&again)
			require.Equal(t, c.entry, again.String())
		})
	}
}

// TestEntriesThatAreRefused: what is ambiguous, or no mistake, has to be written anew.
func TestEntriesThatAreRefused(t *testing.T) {
	const head = "# breaks: a promise\n# killed by: TestA\n"
	for _, c := range []struct{ entry, want string }{
		{head + "queue.take\n- q.items\n+ nil\n", "stands there 3 times"},
		{head + "queue.take\n- n > 1\n+ n > 2\n", "stands there 0 times"},
		{head + "queue.give\n- n > 0\n+ n > 2\n", "declared 0 times"},
		{head + "queue.take\n- n > 0\n+ 0 < (n\n", "missing"},
		{head + "queue.take\n- n > 0\n+ (n > 0)\n", "changes nothing"},
		{head + "queue.take\n- // as long as asked\n+ // quite\n", "changes nothing"},
		{head + "queue.take\n+ n > 0\n", "needs one with -"},
		{head + "- n > 0\n", "the declaration comes before"},
		{head + "queue.take\n", "a line with -"},
		{"# killed by: TestA\nqueue.take\n- n > 0\n", "needs one of"},
		{"# breaks: a promise\nqueue.take\n- n > 0\n", "needs a test"},
		{"# breaks: a\n# breaks nothing: b\n# killed by: TestA\nqueue.take\n- n > 0\n", "needs one of"},
		{"# a remark\nqueue.take\n- n > 0\n", "a comment is"},
	} {
		entries, err := parseTable("a/"+tableName, c.entry)
		if err == nil {
			_, err = entries[0].find(parseSample(t))
		}
		require.ErrorContains(t, err, c.want, c.entry)
	}
}

// TestTableOfSeveral: empty lines divide entries, and the name of one says where it stands.
func TestTableOfSeveral(t *testing.T) {
	entries, err := parseTable("a/"+tableName, `
# breaks nothing: two is more than one
take
- two
+ 1

# breaks: b
# killed by: ./b TestB/part -seed 1
queue.take
- n > 0
+ n > 1
`)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "two is more than one", entries[0].accepted)
	require.Equal(t, "a/mutations.txt:7", entries[1].name())
	require.Equal(t, []string{"./b", "TestB/part", "-seed", "1"}, entries[1].killedBy)
	require.Equal(t, "^(TestB)$/^(part)$", runPattern(entries[1].killedBy[1]))
}
