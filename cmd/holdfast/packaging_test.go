package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
)

// TestPackagingNamesFlags: the files of packaging/ set variables that the program reads.
func TestPackagingNamesFlags(t *testing.T) {
	known := make(map[string]bool)
	client := newClientFlags()
	for _, o := range append(options(new(server.Config)), client.rows()...) {
		known[o.env()], known["--"+o.name] = true, true
	}
	name := regexp.MustCompile(`\bHOLDFAST_[A-Z_]+|--[a-z]+-(?:timeout|memory|clients)\b`)
	found := 0
	for _, file := range []string{
		"holdfast.service", "holdfast.env", "Dockerfile", "compose.yaml", "kubernetes.yaml",
		"KUBERNETES.md",
	} {
		text, err := os.ReadFile(filepath.Join("packaging", file))
		require.NoError(t, err)
		for _, m := range name.FindAllString(string(text), -1) {
			found++
			require.True(t, known[m], "%s names %s, which is no flag", file, m)
		}
	}
	require.Greater(t, found, 10)
}
