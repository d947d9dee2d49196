//go:build !unix

package main

import "io"

// ignoreTerminalInput does nothing here.
func ignoreTerminalInput() {}

// terminalSize returns a function that reports no terminal.
func terminalSize(io.Writer) func() (rows, columns int, terminal bool) {
	return func() (int, int, bool) { return 0, 0, false }
}
