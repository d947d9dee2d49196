package fleet

import "syscall"

// childAttr makes a process that ends with this program and gets no signals from the terminal.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// reservePort binds a socket to a free port, and keeps the socket without listening. The kernel lets another socket
// with SO_REUSEADDR, as Go's listeners and Redis's are, bind to that port by its number, and gives the port to nobody
// who asks for any, be it to listen or to connect.
func reservePort() (int, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	addr, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}
