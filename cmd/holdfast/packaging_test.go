package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/holdfast/holdfast/protocol/protocoltest"
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
		text := protocoltest.ReadFile(t, filepath.Join("packaging", file))
		for _, m := range name.FindAllString(text, -1) {
			found++
			require.True(t, known[m], "%s names %s, which is no flag", file, m)
		}
	}
	require.Greater(t, found, 10)
}

// workflow is what a test reads of a file in .github/workflows.
type workflow struct {
	Jobs map[string]struct {
		Strategy struct {
			Matrix struct{ Job []string }
		}
	}
}

// TestWorkflowsRunTheJobsOfTheScript: the hosted workflows have each job of .ci/run in their matrices, those of a
// change and those of the night, and CONTRIBUTING.md says when each job runs.
func TestWorkflowsRunTheJobsOfTheScript(t *testing.T) {
	read := func(path ...string) string {
		text := protocoltest.ReadFile(t, filepath.Join(append([]string{"..", ".."}, path...)...))
		return text
	}
	script, contributing := read(".ci", "run"), read(".github", "CONTRIBUTING.md")
	for job, file := range map[string]string{"change": "ci.yml", "night": "nightly.yml"} {
		list := regexp.MustCompile(`(?m)^` + job + `='(.*)'$`).FindStringSubmatch(script)
		require.NotNil(t, list, "the jobs of a %s in .ci/run", job)
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(read(".github", "workflows", file)), &w))
		require.Equal(t, strings.Fields(list[1]), w.Jobs[job].Strategy.Matrix.Job,
			"%s: the matrix has the jobs of .ci/run, in order", file)
		for _, name := range strings.Fields(list[1]) {
			require.Contains(t, script, "\nrun_"+strings.ReplaceAll(name, "-", "_")+"() {", "a function in .ci/run")
			require.Contains(t, contributing, "`"+name+"`", "a row in CONTRIBUTING.md")
		}
	}
	release := read(".github", "workflows", "release.yml")
	for _, m := range regexp.MustCompile(`run: \.ci/run ([a-z -]+)`).FindAllStringSubmatch(release, -1) {
		for _, name := range strings.Fields(m[1]) {
			require.Contains(t, script, "\nrun_"+name+"() {", "release.yml runs a job of .ci/run")
		}
	}
}
