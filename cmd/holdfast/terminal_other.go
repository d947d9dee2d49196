//go:build !unix

package main

import "io"

// ignoreTerminalInput is for Unix.
func ignoreTerminalInput() {}

// terminalSize knows no terminal.
func terminalSize(io.Writer) func() (rows, columns int, terminal bool) {
	return func() (int, int, bool) { return 0, 0, false }
}
