//go:build !unix

package frontend

import (
	"net"
	"syscall"
)

// rawConn returns nil: sockets of this system cannot be read without waiting.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (st *stream) readRaw(bool) error { panic("frontend: no raw connection on this system") }
