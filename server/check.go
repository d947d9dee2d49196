package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/secrets"
)

// Check validates the settings, the files and certificates that they name, and the addresses, without starting a node.
// err joins all mistakes. notes are unusual conditions that are no mistakes, such as a port in use by a running node.
func Check(c Config) (notes []string, err error) {
	errs := []error{c.Validate()}
	keys, err := secrets.Open(c.SecretsConfig, slog.New(slog.DiscardHandler))
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, keys.Misfits(time.Now())...)
		host, _, _ := net.SplitHostPort(cmp.Or(c.AdvertiseAddr, c.Addr))
		if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
			if err := keys.ServesAs(host); err != nil {
				notes = append(notes, fmt.Sprintf("tls-cert does not go with the address that clients are told: %v", err))
			}
		}
		errs = append(errs, c.exposes(keys.Held()))
	}
	for _, port := range []struct{ flag, addr string }{
		{"addr", c.Addr}, {"peer-addr", c.PeerAddr}, {"sentinel-addr", c.SentinelAddr}, {"http-addr", c.HTTPAddr},
	} {
		if port.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", port.addr)
		switch {
		case err == nil:
			errs = append(errs, ln.Close())
		case errors.Is(err, syscall.EADDRINUSE):
			notes = append(notes, fmt.Sprintf("%s %s is in use, by this node if it runs", port.flag, port.addr))
		default:
			errs = append(errs, fmt.Errorf("%s: %w", port.flag, err))
		}
	}
	if m, err := newMemory(c.MemoryConfig, os.DirFS("/")); err == nil && m.shortageWarning() != "" {
		notes = append(notes, m.shortageWarning())
	}
	if c.AuditLog != "" {
		if err := audit.Check(c.AuditLog); err != nil {
			errs = append(errs, fmt.Errorf("audit-log: %w", err))
		}
	}
	switch folder, err := os.Stat(c.DataDir); {
	case errors.Is(err, os.ErrNotExist):
		notes = append(notes, fmt.Sprintf("data-dir %s is not there: the node would begin with an empty one", c.DataDir))
	case err != nil:
		errs = append(errs, fmt.Errorf("data-dir: %w", err))
	case !folder.IsDir():
		errs = append(errs, fmt.Errorf("data-dir %s is no folder", c.DataDir))
	}
	return notes, errors.Join(errs...)
}
