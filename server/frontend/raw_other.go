//go:build !unix

package frontend

import (
	"net"
	"syscall"
)

// rawConn is for systems with sockets that can be read without waiting.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (c *conn) readRaw(bool) error { panic("frontend: no raw connection on this system") }
