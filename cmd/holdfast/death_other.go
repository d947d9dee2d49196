//go:build !linux

package main

import "syscall"

// diesWithParent does nothing here: a command outlives this process when that is killed.
func diesWithParent(*syscall.SysProcAttr) {}
