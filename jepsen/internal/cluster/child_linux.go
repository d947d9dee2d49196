package cluster

import "syscall"

// childAttr makes a process that ends with this process and gets no signals from the terminal.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
