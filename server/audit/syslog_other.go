//go:build !unix

package audit

import (
	"errors"
	"log/slog"
)

func openSyslog(string, string, <-chan struct{}, *slog.Logger) (output, error) {
	return nil, errors.New("this system has no syslog: name a file, or stdout")
}
