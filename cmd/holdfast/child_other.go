//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// diesWithParent does nothing here: a command survives if this process is killed.
func diesWithParent(*syscall.SysProcAttr) {}

// ownGroup does nothing here: the terminal sends Ctrl-C to the children, too, and they stop gracefully.
func ownGroup(*exec.Cmd) {}
