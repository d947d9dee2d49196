//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// diesWithParent does nothing here: a command outlives this process when that is killed.
func diesWithParent(*syscall.SysProcAttr) {}

// ownGroup does nothing here: Ctrl-C reaches the children by the terminal, and they end gracefully.
func ownGroup(*exec.Cmd) {}
