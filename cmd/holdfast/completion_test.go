package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletion: each shell has a script with all commands; where bash is, the script completes commands and flags.
func TestCompletion(t *testing.T) {
	script := func(shell string) string {
		var out, complaint bytes.Buffer
		require.Equal(t, 0, run(t.Context(), []string{"completion", shell}, &out, &complaint), complaint.String())
		return out.String()
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		for _, c := range commands() {
			require.Contains(t, script(shell), c.name, shell)
		}
	}
	require.Equal(t, 2, run(t.Context(), []string{"completion", "tcsh"}, new(bytes.Buffer), new(bytes.Buffer)))
	require.Equal(t, 2, run(t.Context(), []string{"completion"}, new(bytes.Buffer), new(bytes.Buffer)))

	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	exe := build(t)
	complete := func(words ...string) string {
		quoted := "'" + strings.Join(words, "' '") + "'"
		c := exec.Command(bash, "-c", script("bash")+"\nCOMP_WORDS=("+quoted+
			"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _holdfast; echo ${COMPREPLY[*]}")
		c.Dir = filepath.Dir(exe)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "serve", complete(exe, "se"))
	require.Equal(t, "--http-addr --http-pprof", complete(exe, "serve", "--http"))
	require.Equal(t, "--port", complete(exe, "demo", "--keep", "--port"))
	require.Equal(t, "remove repair replace", complete(exe, "cluster", "re"))
	require.Equal(t, "break history", complete(exe, "locks", ""))
	require.Empty(t, complete(exe, "cluster", "remove", "s"), "a name of the cluster's")
	require.Empty(t, complete(exe, "serve", "--tls-cert", "/etc/"), "the shell completes files")
}

// TestCompletionOfOtherShells: where zsh and fish are, their scripts complete commands and flags.
func TestCompletionOfOtherShells(t *testing.T) {
	exe := build(t)
	var script bytes.Buffer
	in := func(t *testing.T, shell string) func(code string) string {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Skip("there is no " + shell)
		}
		script.Reset()
		require.Equal(t, 0, run(t.Context(), []string{"completion", shell}, &script, &script))
		return func(code string) string {
			t.Helper()
			c := exec.Command(path, map[string][]string{"zsh": {"-f", "-c"}, "fish": {"--no-config", "-c"}}[shell]...)
			c.Args = append(c.Args, code)
			c.Env = append(c.Environ(), "PATH="+filepath.Dir(exe)+":/usr/bin:/bin", "HOME="+t.TempDir())
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
			return strings.Join(strings.Fields(string(out)), " ")
		}
	}
	t.Run("fish", func(t *testing.T) {
		fish := in(t, "fish")
		complete := func(line string) string { return fish(script.String() + "\ncomplete -C '" + line + "'") }
		require.Equal(t, "serve", complete("holdfast se"))
		require.Equal(t, "--http-addr --http-pprof", complete("holdfast serve --http"))
		require.Equal(t, "--port", complete("holdfast demo --keep --port"))
		require.Equal(t, "remove repair replace", complete("holdfast cluster re"))
		require.Equal(t, "break", complete("holdfast locks br"))
		require.NotContains(t, complete("holdfast cluster remove s"), "status")
	})
	t.Run("zsh", func(t *testing.T) {
		zsh := in(t, "zsh")
		complete := func(words ...string) string { // compadd itself leaves what the word does not begin
			return zsh("compdef() {}; _files() { print files }; compadd() { shift; print -l -- $@ }\n" + script.String() +
				"\nwords=('" + strings.Join(words, "' '") + "'); CURRENT=${#words}; _holdfast")
		}
		require.Contains(t, complete("holdfast", "se"), "serve demo lock")
		require.Contains(t, complete("holdfast", "serve", "--http"), "--http-addr --http-pprof")
		require.NotContains(t, complete("holdfast", "demo", "--"), "--initial-cluster")
		require.Contains(t, complete("holdfast", "cluster", "re"), "members remove repair replace")
		require.Equal(t, "files", complete("holdfast", "cluster", "remove", "s"))
		require.Equal(t, "files", complete("holdfast", "backup", "f"))
		require.Equal(t, "files", complete("holdfast", "serve", "--tls-cert", "/etc/"))
	})
}
