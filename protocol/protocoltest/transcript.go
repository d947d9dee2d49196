package protocoltest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write what the code answers into testdata, instead of comparing it")

// Rewriting reports whether the test runs with -rewrite. Such a test writes the files under
// testdata and does not compare them.
func Rewriting() bool { return *rewrite }

// Transcripts plays every file that matches glob, in a subtest named after the file. play runs the
// lines of a file and returns the lines with the answers, which must be equal to the file. With
// -rewrite the answers are written into the file: look at the difference before you keep the file.
func Transcripts(t *testing.T, glob string, play func(t *testing.T, script []byte) []byte) {
	t.Helper()
	files, err := filepath.Glob(glob)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, want)
			if Rewriting() {
				require.NoError(t, os.WriteFile(file, got, 0o644))
				return
			}
			SameLines(t, string(want), string(got))
		})
	}
}

// Lines plays the lines of a script one by one, each with the answers of step below, indented. The answers
// that the script has already, empty lines and comments are not for step.
func Lines(t testing.TB, script []byte, step func(words []string) (answers []string)) []byte {
	t.Helper()
	var out bytes.Buffer
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		words := Words(t, line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		for _, answer := range step(words) {
			out.WriteString("  " + answer + "\n")
		}
	}
	return out.Bytes()
}

// SameLines requires two texts to be equal. A failure shows the lines around the first difference,
// and not all of both.
func SameLines(t testing.TB, want, got string) {
	t.Helper()
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			require.Fail(t, "the text differs", "line %d\nwant:\n%s\ngot:\n%s", i+1, around(w, i), around(g, i))
		}
	}
}

// around is line i with up to three lines before and two behind.
func around(lines []string, i int) string {
	from, until := max(0, i-3), i+3
	return strings.Join(lines[min(from, len(lines)):min(until, len(lines))], "\n")
}

// Words splits a line of a transcript at blanks. A word that begins with a quotation mark is a Go string.
func Words(t testing.TB, line string) (words []string) {
	t.Helper()
	for rest := strings.TrimLeft(line, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if rest[0] != '"' && rest[0] != '`' {
			word, after, _ := strings.Cut(rest, " ")
			words, rest = append(words, word), after
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		require.NoError(t, err, line)
		word, err := strconv.Unquote(quoted)
		require.NoError(t, err, line)
		words, rest = append(words, word), rest[len(quoted):]
	}
	return words
}
