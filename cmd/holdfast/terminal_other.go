//go:build !unix

package main

// ignoreTerminalInput is for Unix.
func ignoreTerminalInput() {}
