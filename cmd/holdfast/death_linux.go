package main

import "syscall"

// diesWithParent kills the command when this process is killed: nobody would be left to keep the lock.
func diesWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
