package peers

import "golang.org/x/sys/unix"

// waitStopped waits until a child has stopped after SIGSTOP. On a busy machine its threads run until one has received
// the signal.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
