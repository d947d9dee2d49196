//go:build unix && !linux

package cluster

import "syscall"

// childAttr makes a process that gets no signals from the terminal. The child outlives this process if that is
// killed: only Linux ends the child.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
