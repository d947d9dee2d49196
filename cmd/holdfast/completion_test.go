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
		c := exec.Command(bash, "-c", script("bash")+"\nCOMP_WORDS=("+quoted+"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _holdfast; echo ${COMPREPLY[*]}")
		c.Dir = filepath.Dir(exe)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "serve", complete(exe, "se"))
	require.Equal(t, "--http-addr --http-pprof", complete(exe, "serve", "--http"))
	require.Equal(t, "--port", complete(exe, "demo", "--keep", "--port"))
	require.Empty(t, complete(exe, "serve", "--tls-cert", "/etc/"), "the shell completes files")
}
