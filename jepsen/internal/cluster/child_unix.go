//go:build unix && !linux

package cluster

import "syscall"

// childAttr makes a process that gets no signals from this one's terminal. It stays behind if this one is
// killed: only Linux ends it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
