package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/holdfast/holdfast/protocol"
)

// docs prints the documents that derive from tables.
func docs(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return usageError{errors.New("say 'flags' or 'commands'")}
	}
	var text string
	switch what := args[0]; {
	case wantsHelp(args):
		text = "usage: holdfast docs flags|commands\n"
	case what == "flags":
		text = flagDocument()
	case what == "commands":
		text = commandDocument()
	default:
		return usageError{fmt.Errorf("%q: say 'flags' or 'commands'", what)}
	}
	_, err := io.WriteString(stdout, text)
	return err
}

// flagDocument is FLAGS.md beside this file.
func flagDocument() string {
	return "# Flags\n\nMade by `make rewrite` from the table in [flags.go](flags.go). Every flag of `holdfast serve` is also an environment\nvariable; a flag wins. The flags of `holdfast lock`, `holdfast locks`, `holdfast cluster`, `holdfast backup`,\n`holdfast inspect`, `holdfast restore` and `holdfast recover` stand at the end.\n\n" + flagTable() + clientTable()
}

// commandDocument is COMMANDS.md of package protocol.
func commandDocument() string {
	return "# Commands\n\nMade by `make rewrite` from the command table of this package. [COMPATIBILITY.md](COMPATIBILITY.md) says where Holdfast\ndiffers from Redis.\n\n" +
		protocol.Reference()
}

// version prints the release, the revision it was built from, and the version of what it
// writes to the log.
func version(_ context.Context, args []string, stdout, _ io.Writer) error {
	switch {
	case wantsHelp(args):
		_, err := io.WriteString(stdout, "usage: holdfast version\n")
		return err
	case len(args) > 0:
		return unexpected(args[0])
	}
	revision := "unknown revision"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	_, err := fmt.Fprintf(stdout, "holdfast %s (%s), log format %d\n", protocol.HoldfastVersion, revision, protocol.EntryVersion)
	return err
}
