package cluster

import "syscall"

// childAttr makes a process that ends with this one and gets no signals from its terminal.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
