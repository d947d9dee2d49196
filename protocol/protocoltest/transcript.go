// Package protocoltest helps the tests of other packages: protocoltest makes random command lines
// and requests, plays transcripts, and starts a real redis-server to compare with.
//
// The package promises that the argument grammar of a command's row allows every line of
// [Generator.Line]: the row's arity holds, the keys are where the row says, the count of keys is
// right, and the numbers are in the range in which the command takes them. So a handler never
// answers such a line with a syntax error, but any other error may be the answer (WRONGTYPE, no
// such key).
//
// The package does not promise that every line which the grammar allows is made, and makes no lines
// that are wrong.
package protocoltest

import (
	"bytes"
	"flag"
	"iter"
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

// Golden returns the text of the file at path, which got is compared with. With -rewrite got is written there first.
func Golden(t testing.TB, path, got string) (want string) {
	t.Helper()
	if Rewriting() {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	return ReadFile(t, path)
}

// ReadFile returns the text of a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Transcripts plays the transcripts in the files that match glob, each in a subtest of its name: see
// [ReadTranscripts]. play runs the lines of a transcript and returns the lines with the answers, which must be equal to
// the transcript. With -rewrite the answers are written into the file: look at the difference before you keep the file.
func Transcripts(t *testing.T, glob string, play func(t *testing.T, script []byte) []byte) {
	t.Helper()
	for path, file := range transcriptFiles(t, glob) {
		line := 1 + bytes.Count(file.comment, []byte("\n"))
		for i := range file.transcripts {
			transcript, above := &file.transcripts[i], line
			line += 1 + bytes.Count(transcript.Data, []byte("\n"))
			t.Run(transcript.Name, func(t *testing.T) {
				got := play(t, transcript.Data)
				if Rewriting() {
					transcript.Data = got
					return
				}
				sameLines(t, path, above, string(transcript.Data), string(got))
			})
		}
		if Rewriting() { // after the subtests, which may be parallel
			t.Cleanup(func() { require.NoError(t, os.WriteFile(path, file.format(), 0o644)) })
		}
	}
}

// ReadTranscripts reads the transcripts in the files that match glob. A file holds the transcripts of one topic. A line
// with the name stands above each of them, as in the archives of the Go tools (txtar):
//
//	-- name --
//
// No two transcripts have the same name.
func ReadTranscripts(t testing.TB, glob string) (all []Transcript) {
	t.Helper()
	for _, file := range transcriptFiles(t, glob) {
		all = append(all, file.transcripts...)
	}
	return all
}

// Transcript is the lines below a name.
type Transcript struct {
	Name string
	Data []byte
}

// transcriptFile is a file of transcripts, with what stands above the first name.
type transcriptFile struct {
	comment     []byte
	transcripts []Transcript
}

func parseTranscripts(text []byte) *transcriptFile {
	file := &transcriptFile{}
	lines := &file.comment
	for line := range bytes.Lines(text) {
		marker := bytes.TrimSpace(line)
		name, begins := bytes.CutPrefix(marker, []byte("-- "))
		name, ends := bytes.CutSuffix(name, []byte(" --"))
		if begins && ends {
			file.transcripts = append(file.transcripts, Transcript{Name: string(name)})
			lines = &file.transcripts[len(file.transcripts)-1].Data
			continue
		}
		*lines = append(*lines, line...)
	}
	return file
}

func (f *transcriptFile) format() []byte {
	text := bytes.Clone(f.comment)
	for _, t := range f.transcripts {
		text = append(text, "-- "+t.Name+" --\n"...)
		text = append(text, t.Data...)
	}
	return text
}

// transcriptFiles reads the files that match glob, by path.
func transcriptFiles(t testing.TB, glob string) iter.Seq2[string, *transcriptFile] {
	t.Helper()
	paths, err := filepath.Glob(glob)
	require.NoError(t, err)
	require.NotEmpty(t, paths, glob)
	names := map[string]string{}
	return func(yield func(string, *transcriptFile) bool) {
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			file := parseTranscripts(text)
			require.NotEmpty(t, file.transcripts, "%s: there is no line -- name --", path)
			for _, transcript := range file.transcripts {
				require.NotContains(t, names, transcript.Name, "%s: the name is there twice", path)
				names[transcript.Name] = path
			}
			if !yield(path, file) {
				return
			}
		}
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
	sameLines(t, "line", 0, want, got)
}

// sameLines is SameLines of a text that stands in a file, below so many lines.
func sameLines(t testing.TB, file string, above int, want, got string) {
	t.Helper()
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			require.Fail(t, "the text differs", "%s:%d\nwant:\n%s\ngot:\n%s", file, above+i+1, around(w, i), around(g, i))
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
