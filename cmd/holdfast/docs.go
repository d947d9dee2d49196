package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/api"
)

// docs prints the documents that derive from tables.
func docs(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return usageError{errors.New("say 'flags', 'commands' or 'man'")}
	}
	var text string
	switch what := args[0]; {
	case wantsHelp(args):
		text = "usage: holdfast docs flags|commands|man\n"
	case what == "flags":
		text = flagDocument()
	case what == "commands":
		text = commandDocument()
	case what == "man":
		text = manPage(ctx)
	default:
		return usageError{fmt.Errorf("%q: say 'flags', 'commands' or 'man'", what)}
	}
	_, err := io.WriteString(stdout, text)
	return err
}

// manPage is holdfast(1): the help of each command, which comes from the tables of flags.
func manPage(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		".TH HOLDFAST 1 \"\" \"holdfast %s\"\n.SH NAME\nholdfast \\- a lock server that speaks the Redis protocol\n",
		protocol.HoldfastVersion)
	preformatted(&b, "SYNOPSIS", usage)
	for _, c := range commands() {
		if c.name == "help" {
			continue
		}
		var help strings.Builder
		_ = c.run(ctx, []string{"--help"}, &help, &help) // help is no error, whatever the command makes of it
		preformatted(&b, "holdfast "+c.name, help.String())
	}
	return b.String()
}

// preformatted appends a section of a man page with text as it stands.
func preformatted(b *strings.Builder, title, text string) {
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	fmt.Fprintf(b, ".SH %s\n.nf\n%s\n.fi\n", escape.Replace(strings.ToUpper(title)),
		strings.TrimPrefix(escape.Replace("\n"+strings.TrimSpace(text)), "\n"))
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

// version prints the release, the revision it was built from, and the version of what it
// writes to the log.
func version(_ context.Context, args []string, stdout, _ io.Writer) error {
	switch {
	case wantsHelp(args):
		_, err := io.WriteString(stdout, "usage: holdfast version [--json]\n")
		return err
	case len(args) > 1:
		return unexpected(args[1])
	case len(args) == 1 && args[0] != "--json" && args[0] != "-json":
		return unexpected(args[0])
	}
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if len(args) == 1 {
		return writeJSON(stdout, versionDocument{api.Format, protocol.HoldfastVersion, revision, protocol.EntryVersion})
	}
	_, err := fmt.Fprintf(stdout, "holdfast %s (%s), log format %d\n", protocol.HoldfastVersion,
		cmp.Or(revision, "unknown revision"), protocol.EntryVersion)
	return err
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
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", o.name, env, def, o.help)
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
