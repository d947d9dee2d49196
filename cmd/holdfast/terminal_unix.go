//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreTerminalInput lets a demo in the background run on, where reading from the terminal
// would stop it: it reads the end of its input instead.
func ignoreTerminalInput() { signal.Ignore(syscall.SIGTTIN) }
