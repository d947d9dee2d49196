package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// TestDocs: the pages of the binary are all that the README and OPERATING.md name for users and operators; written to a
// folder, they link to each other or to a file of the repository; people find a page or a chapter by what they call it.
func TestDocs(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, writePages(folder))
	link := regexp.MustCompile(`(?:\]\(|src=")([^)"#\s]+)`)
	inside, outside := 0, 0
	for _, name := range pages() {
		text := protocoltest.ReadFile(t, filepath.Join(folder, filepath.FromSlash(name)))
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if file, ours := strings.CutPrefix(m[1], repository); ours {
				outside++
				_, err := os.Stat(filepath.Join("..", "..", file))
				require.NoError(t, err, "%s links to %s", name, m[1])
			} else if !strings.Contains(m[1], "://") {
				inside++
				require.FileExists(t, filepath.Join(folder, path.Dir(name), m[1]), "%s links to %s", name, m[1])
			}
		}
	}
	require.Greater(t, inside, 50)
	require.Greater(t, outside, 20)
	_, table, _ := strings.Cut(page("README.md"), "\n## Documents\n")
	table, _, _ = strings.Cut(table, "| readers |")
	require.Greater(t, len(link.FindAllString(table, -1)), 8)
	require.NotContains(t, table, repository, "a page for users or operators that the program does not carry")
	require.NotContains(t, page("server/OPERATING.md"), repository)

	for name, want := range map[string]string{
		"troubles": "# Troubles\n", "server/OPERATING": "# Operating Holdfast\n", "../LOCKS.md#words": "## Words\n",
		"HoldfastDown": "## HoldfastDown\n", "a job hangs": "## A job hangs\n", "Install.md": "# Install and run\n",
		repository + "server/operating/ALERTS.md#holdfastdown": "## HoldfastDown\n",
	} {
		require.True(t, strings.HasPrefix(findPage(name), want), "%s: %.80s", name, findPage(name))
	}
	for _, name := range []string{"", ".md", "/", "#", "troubles#birds", "oubles"} {
		require.Empty(t, findPage(name), name)
	}
	alert := findPage("HoldfastDown")
	require.Contains(t, alert, "To do:")
	require.NotContains(t, alert, "HoldfastAbsent", "the next chapter")
	code := "# a\n```sh\n# no heading\n```\nend\n"
	require.Equal(t, code, pageChapter(code+"# b\n", "a"), "a comment in code ends no chapter")
}

// TestGeneratedDocuments keeps the tables in the documents equal to those in the code.
func TestGeneratedDocuments(t *testing.T) {
	for path, want := range map[string]string{
		"cmd/holdfast/FLAGS.md": flagDocument(),
		"protocol/COMMANDS.md":  commandDocument(),
	} {
		path := filepath.Join("..", "..", path)
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			continue
		}
		if !protocoltest.Rewriting() {
			t.Errorf("%s differs from the code: run 'make rewrite' and look at the change", path)
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
}

// flagDocument is FLAGS.md beside this file.
func flagDocument() string {
	return "# Flags\n\nMade by `make rewrite` from the table in [flags.go](flags.go). Every flag of `holdfast serve` " +
		"is also an environment\nvariable; a flag wins. `holdfast serve --check` proves them, and starts nothing. The " +
		"flags of `holdfast lock`,\n`holdfast locks`, `holdfast cluster`, `holdfast backup`, `holdfast import`, `holdfast " +
		"inspect`, `holdfast certs`,\n`holdfast restore` and `holdfast recover` stand at the end.\n\n" + flagTable() +
		clientTable()
}

// commandDocument is COMMANDS.md of package protocol.
func commandDocument() string {
	return "# Commands\n\nMade by `make rewrite` from the command table of this package. " +
		"[COMPATIBILITY.md](COMPATIBILITY.md) says where Holdfast\ndiffers from Redis.\n\n" +
		protocol.Reference()
}

// clientTable is the documents' table of the flags of the commands that are clients.
func clientTable() string {
	all := "`holdfast lock`, `holdfast locks`, `holdfast cluster`, `holdfast backup` and `holdfast import`"
	own := newLockOwn()
	return flagSection(own.rows(), "The lock", "`holdfast lock`") +
		flagSection(newLocksOwn().rows(), locksHeading, "`holdfast locks`") +
		flagSection(newLocksOwn().rows(), breakHeading, "`holdfast locks break`") +
		flagSection(newClusterOwn().rows(), clusterHeading, "`holdfast cluster`") +
		flagSection((&backupOwn{clientFlags: newClientFlags()}).rows(), backupHeading, "`holdfast backup`") +
		flagSection(newImportOwn().rows(), importHeading, "`holdfast import`") +
		flagSection(newImportOwn().rows(), sourceHeading, "`holdfast import`") +
		flagSection(own.rows(), connecting, all) +
		flagSection((&inspectOwn{fences: shownFences}).rows(), "The report", "`holdfast inspect`") +
		flagSection(newCertsOwn().rows(), certsHeading, "`holdfast certs`") +
		flagSection(newRestoreOwn().rows(), restoreHeading, "`holdfast restore`") +
		flagSection(newRecoverOwn().rows(), recoverHeading, "`holdfast recover`") +
		flagSection(newRestoreOwn().rows(), renewalHeading,
			"`holdfast restore` and `holdfast recover`, which keeps locks unless told otherwise")
}

// flagSection is the table of the flags below a heading.
func flagSection(rows []option, heading, of string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s, for %s\n\n| flag | environment | default | |\n|---|---|---|---|\n", heading, of)
	inside := false
	for _, o := range rows {
		if o.heading != "" {
			inside = o.heading == heading
			continue
		}
		if !inside {
			continue
		}
		env, def := "", shownDefault(o)
		if isShared(heading) {
			env = "`" + o.env() + "`"
		}
		if def != "" && def != "false" {
			def = "`" + def + "`"
		} else {
			def = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", dashed(o.name), env, def, o.help)
	}
	return b.String()
}

// flagTable is the documents' table of flags, in Markdown.
func flagTable() string {
	c := server.DefaultConfig()
	var b strings.Builder
	heading := ""
	for _, o := range options(&c) {
		if o.heading != "" {
			heading = o.heading
			continue
		}
		if o.debug {
			continue
		}
		if heading != "" {
			fmt.Fprintf(&b, "%s## %s\n\n| flag | environment | default | |\n|---|---|---|---|\n", blankLine(&b), heading)
			heading = ""
		}
		def := newFlagValue(o.value).String()
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", o.name, o.env(), def, o.help)
	}
	return b.String()
}

func blankLine(b *strings.Builder) string {
	if b.Len() == 0 {
		return ""
	}
	return "\n"
}
