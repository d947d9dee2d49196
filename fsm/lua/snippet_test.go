package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// The files in testdata/snippets hold scripts and the replies that redis-server 7.0.15 gave. A line
// that begins with "> " is the first of a script, "| " a further one, "= " is the reply; "~ " is ours,
// where it differs on purpose, and the line "# " before says why. [TestDifferentialSnippets] writes the replies.

// snippet is a script with the replies to it.
type snippet struct {
	script string
	redis  string
	// ours is the reply of this engine where it differs.
	ours    string
	differs bool
	line    int
}

// snippetKeys and snippetArgs are KEYS and ARGV of all snippets.
var (
	snippetKeys = []string{"key1", "key2"}
	snippetArgs = []string{"arg1", "2", "3.5", ""}
)

func snippetFiles(t testing.TB) []string {
	files, err := filepath.Glob("testdata/snippets/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func readSnippets(t testing.TB, file string) []*snippet {
	data := protocoltest.ReadFile(t, file)
	var all []*snippet
	for i, line := range strings.Split(data, "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		switch mark {
		case ">":
			all = append(all, &snippet{script: rest, line: i + 1})
		case "|":
			all[len(all)-1].script += "\n" + rest
		case "=":
			all[len(all)-1].redis = rest
		case "~":
			all[len(all)-1].ours, all[len(all)-1].differs = rest, true
		}
	}
	return all
}

func sha1Hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// runSnippet runs a script with a keyspace of its own, and writes the reply in a line.
func runSnippet(script string) string {
	p, err := Compile(script, DefaultLimits())
	if err != nil {
		return showReply(protocol.ErrValue(err.Error()), script)
	}
	v, _ := p.Run(&Env{Keys: snippetKeys, Args: snippetArgs, Host: newFakeHost(), SHA: sha1Hex(script)})
	return showReply(v, script)
}

// showReply writes a reply as the line of a snippet file: its RESP2 bytes, with the script's hash
// replaced.
func showReply(v protocol.Value, script string) string {
	return showBytes(v.AppendTo(nil, protocol.RESP2), script)
}

func showBytes(reply []byte, script string) string {
	text := strings.ReplaceAll(string(reply), sha1Hex(script), "<sha>")
	var out strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\r':
		case c == '\n':
			out.WriteByte('|')
		case c == '\\' || c == '|':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c >= 127:
			out.WriteString(`\x` + hex.EncodeToString([]byte{c}))
		default:
			out.WriteByte(c)
		}
	}
	return strings.TrimSuffix(out.String(), "|")
}

func TestSnippets(t *testing.T) {
	for _, file := range snippetFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, s := range readSnippets(t, file) {
				want := s.redis
				if s.differs {
					want = s.ours
				}
				if got := runSnippet(s.script); got != want {
					t.Errorf("%s:%d\n%s\n got %s\nwant %s", file, s.line, s.script, got, want)
				}
			}
		})
	}
}
