//go:build !linux

package fleet

import (
	"net"
	"syscall"
)

// childAttr is nothing here: a process outlives this program if that is killed, and the terminal's Ctrl-C reaches both.
func childAttr() *syscall.SysProcAttr { return nil }

// reservePort finds a port that is free for now: here no socket keeps a port that another may listen at.
func reservePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
