package peers

import "golang.org/x/sys/unix"

// waitStopped returns when a child that was sent SIGSTOP has stopped: on a busy machine
// its threads go on until some thread has seen the signal.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
