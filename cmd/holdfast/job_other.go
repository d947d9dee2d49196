//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// job is for Unix: elsewhere there are no process groups and no signals to end a command with.
type job struct {
	stopped chan syscall.Signal
	done    chan struct{}
}

var forwarded []os.Signal

func newJob(string, []string, []string) *job { return &job{} }

func (*job) start() error                { return errors.New("needs Unix") }
func (*job) status() error               { return nil }
func (*job) signal(syscall.Signal)       {}
func (*job) wake()                       {}
func (*job) regain()                     {}
func (*job) goOn()                       {}
func (*job) stopSelf()                   {}
func (*job) mayStop(syscall.Signal) bool { return false }
func (*job) killRest(time.Time)          {}

func dieOf(syscall.Signal, int) {}
