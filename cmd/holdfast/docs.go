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
