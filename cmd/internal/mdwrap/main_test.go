package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 30)) // 149 characters
	head, tail := long[:119], long[120:]
	for _, tc := range []struct{ name, text, want string }{
		{"a paragraph", long + "\n", head + "\n" + tail + "\n"},
		{"lines are joined", "one\ntwo\n\nthree\n", "one two\n\nthree\n"},
		{"a list", "- one\n  two\n- three\n", "- one two\n- three\n"},
		{"an item's indent", "1. " + long + "\n", "1. " + long[:114] + "\n   " + long[115:] + "\n"},
		{"a paragraph of an item", "- one\n\n  two\n  three\n", "- one\n\n  two three\n"},
		{"code", "```\n" + long + "\n\na\nb\n```\n", "```\n" + long + "\n\na\nb\n```\n"},
		{"indented code", "one\n\n    two\n    three\n", "one\n\n    two\n    three\n"},
		{"a table", "| " + long + " |\n|---|\n", "| " + long + " |\n|---|\n"},
		{"headings", "# one\ntwo\n## three\n", "# one\ntwo\n## three\n"},
		{
			"what a tool writes", "<!-- a -->\none\ntwo\n<!-- /a -->\nthree\nfour\n",
			"<!-- a -->\none\ntwo\n<!-- /a -->\nthree four\n",
		},
		{"a section without an end", "<!-- a -->\none\ntwo\n", "<!-- a -->\none\ntwo\n"},
		{"no list is made", head + " - x\n", long[:114] + "\nword - x\n"},
		{"code in a line", long[:110] + " `a b c d e f`\n", long[:109] + "\n`a b c d e f`\n"},
		{"characters, not bytes", strings.Repeat("ä ", 60) + "\n", strings.TrimSpace(strings.Repeat("ä ", 60)) + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := wrap(tc.text)
			require.Equal(t, tc.want, got)
			require.Equal(t, got, wrap(got), "wrapping again changes something")
		})
	}
}

// TestRun: -w mends what is listed without it, and leaves data alone.
func TestRun(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"a.md", ".ci/b.md", ".git/c.md", "testdata/d.md"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte("one\ntwo\n"), 0o600))
	}
	for _, write := range []bool{false, true} {
		differ, err := run(root, write)
		require.NoError(t, err)
		require.Equal(t, []string{".ci/b.md", "a.md"}, differ)
	}
	differ, err := run(root, false)
	require.NoError(t, err)
	require.Empty(t, differ)
}

// TestMarkdownIsWrapped: make fmt leaves the tree as it is.
func TestMarkdownIsWrapped(t *testing.T) {
	differ, err := run(filepath.Join("..", "..", ".."), false)
	require.NoError(t, err)
	require.Empty(t, differ, "run 'make fmt'")
}
