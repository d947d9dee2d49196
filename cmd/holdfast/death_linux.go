package main

import "syscall"

// diesWithParent kills the command when this process is killed: no process would be left to keep the lock.
func diesWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
