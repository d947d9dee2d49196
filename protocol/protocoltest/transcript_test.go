package protocoltest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTranscripts: a section of a file is a transcript of its own, and -rewrite changes what the sections say and
// nothing beside, also when they are played at the same time.
func TestTranscripts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "topic.txt")
	text := "# a topic\n-- one --\nx\n  y\n\n-- two --\nz\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	var names, scripts []string
	for _, transcript := range ReadTranscripts(t, path) {
		names, scripts = append(names, transcript.Name), append(scripts, string(transcript.Data))
	}
	require.Equal(t, []string{"one", "two"}, names)
	require.Equal(t, []string{"x\n  y\n\n", "z\n"}, scripts)

	was := *rewrite
	*rewrite = true
	defer func() { *rewrite = was }()
	t.Run("rewrite", func(t *testing.T) {
		Transcripts(t, filepath.Join(dir, "*.txt"), func(t *testing.T, script []byte) []byte {
			t.Parallel()
			return bytes.ToUpper(script)
		})
	})
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "# a topic\n-- one --\nX\n  Y\n\n-- two --\nZ\n", string(got))
}

func TestWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"set", "a b", `c"d`, "", `e\n`}, Words(t, ` set  "a b" c"d "" `+"`e\\n` "))
	require.Empty(t, Words(t, "  "))
}
