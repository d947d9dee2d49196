//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignoreTerminalInput keeps a demo in the background from being stopped by a read from the terminal: the read fails.
func ignoreTerminalInput() { signal.Ignore(syscall.SIGTTIN) }

// terminalSize returns a function that returns the present size of the terminal w, if w is one.
func terminalSize(w io.Writer) func() (rows, columns int, terminal bool) {
	f, isFile := w.(*os.File)
	return func() (int, int, bool) {
		if !isFile {
			return 0, 0, false
		}
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0, false
		}
		if size.Row == 0 || size.Col == 0 {
			return 24, 80, true // the size is unknown
		}
		return int(size.Row), int(size.Col), true
	}
}
