package server_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/servertest"
)

var rewrite = flag.Bool("rewrite", false, "write what the cluster answers into testdata/*.txt")

// TestTranscripts plays testdata/*.txt: stories of clusters, of what happens to
// them and of what their clients are answered. Read those first; what the
// words mean is in package servertest. With -rewrite the answers are written
// into the files: look at the difference before you keep it.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			var got []byte
			synctest.Test(t, func(t *testing.T) { got = servertest.Play(t, want) })
			if *rewrite {
				require.NoError(t, os.WriteFile(file, got, 0o644))
				return
			}
			requireSameLines(t, string(want), string(got))
		})
	}
}

// requireSameLines shows where two transcripts part, and not all of both.
func requireSameLines(t *testing.T, want, got string) {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			from := max(0, i-3)
			require.Fail(t, "the transcript differs", "line %d\nwant:\n%s\ngot:\n%s", i+1,
				strings.Join(w[min(from, len(w)):min(i+3, len(w))], "\n"), strings.Join(g[min(from, len(g)):min(i+3, len(g))], "\n"))
		}
	}
}
