package fsm

import (
	"bufio"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the replies into testdata instead of comparing them")

// TestTranscripts runs testdata/ops/*.txt: command lines, each with the reply it
// must have indented below it. Words may be quoted as in Go. Besides commands:
//
//	advance <milliseconds>   commit a bare stamp, so much later
//	wall <milliseconds>      move the wall clock against cluster time
//	fresh                    a machine without keys
//
// A line that begins with "read " is run as a read and not through the log.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/ops/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, string(want))
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
}

// play runs a transcript and returns it with the replies it had.
func play(t *testing.T, script string) string {
	d := newDriver(t)
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		text := lines.Text()
		if strings.HasPrefix(text, "  ") {
			continue // a former reply
		}
		out.WriteString(text + "\n")
		words := splitWords(t, text)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "advance", "wall":
			n, err := strconv.ParseInt(words[1], 10, 64)
			require.NoError(t, err)
			if words[0] == "wall" {
				d.wallOffset += n
				n = 0
			}
			d.advance(n)
		case "fresh":
			d = newDriver(t)
		case "read":
			reply, due := d.read(words[1:]...)
			require.False(t, due)
			out.WriteString("  " + line(reply) + "\n")
		default:
			out.WriteString("  " + line(d.do(words...)) + "\n")
		}
	}
	return out.String()
}

func splitWords(t *testing.T, text string) (words []string) {
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		if text[0] == '"' || text[0] == '`' {
			quoted, err := strconv.QuotedPrefix(text)
			require.NoError(t, err, text)
			word, err := strconv.Unquote(quoted)
			require.NoError(t, err)
			words = append(words, word)
			text = text[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		words = append(words, word)
		text = rest
	}
	return words
}
