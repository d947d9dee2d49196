//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignoreTerminalInput lets a demo in the background run on, where reading from the terminal
// would stop it: it reads the end of its input instead.
func ignoreTerminalInput() { signal.Ignore(syscall.SIGTTIN) }

// terminalSize returns a function that says how large the terminal w is now, if w is one.
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
			return 24, 80, true // a terminal that does not say
		}
		return int(size.Row), int(size.Col), true
	}
}
