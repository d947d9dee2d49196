package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/holdfast/holdfast/protocol"
)

// docs prints the parts of the README that derive from tables.
func docs(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("say 'flags' or 'commands'")}
	}
	var text string
	switch args[0] {
	case "flags":
		text = flagTable()
	case "commands":
		text = protocol.Reference()
	default:
		return usageError{fmt.Errorf("%q: say 'flags' or 'commands'", args[0])}
	}
	_, err := io.WriteString(stdout, text)
	return err
}

// version prints the release, the revision it was built from, and the version of what it
// writes to the log.
func version(_ context.Context, _ []string, stdout, _ io.Writer) error {
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
