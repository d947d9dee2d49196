//go:build unix

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"log/syslog"
	"syscall"
	"time"
)

// daemon is an output to a syslog daemon. Each line is a message.
type daemon struct {
	w      *syslog.Writer
	quit   <-chan struct{}
	logger *slog.Logger
	isAway bool
}

// redialEvery is the time between two connects to a daemon that is away.
const redialEvery = 100 * time.Millisecond

// openSyslog connects to the daemon at an address, or to the local daemon if network is "". Once quit is closed, write
// does not wait for a daemon that is away. The messages have the facility authpriv, since not everybody may read them.
func openSyslog(network, address string, quit <-chan struct{}, logger *slog.Logger) (output, error) {
	w, err := syslog.Dial(network, address, syslog.LOG_AUTHPRIV|syslog.LOG_INFO, "holdfast")
	if err != nil {
		return nil, fmt.Errorf("connect to the syslog daemon of this machine, as by /dev/log: %w", err)
	}
	return &daemon{w: w, quit: quit, logger: logger}, nil
}

func (d *daemon) write(lines []byte) error {
	for line := range bytes.Lines(lines) {
		if err := d.send(line); err != nil {
			return err
		}
	}
	return nil
}

// send sends a message. If the daemon is away, as during its restart, send waits and connects again. It fails if the
// message is too long for the socket.
func (d *daemon) send(line []byte) error {
	for {
		_, err := d.w.Write(line)
		if err == nil || errors.Is(err, syscall.EMSGSIZE) {
			d.isAway = false
			return err
		}
		if !d.isAway {
			d.isAway = true
			d.logger.Warn("the syslog daemon takes no lines of the audit log: they wait", "error", err)
		}
		select {
		case <-d.quit:
			return err
		case <-time.After(redialEvery):
		}
	}
}

func (d *daemon) close() { d.w.Close() }
