package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/holdfast/holdfast/protocol"
)

// docs prints the parts of the README that derive from tables.
func docs(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return usageError{errors.New("say 'flags' or 'commands'")}
	}
	var text string
	switch what := args[0]; {
	case wantsHelp(args):
		text = "usage: holdfast docs flags|commands\n"
	case what == "flags":
		text = flagTable()
	case what == "commands":
		text = protocol.Reference()
	default:
		return usageError{fmt.Errorf("%q: say 'flags' or 'commands'", what)}
	}
	_, err := io.WriteString(stdout, text)
	return err
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
