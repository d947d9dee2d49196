// Package hclogger passes the log messages of hashicorp's libraries to log/slog, so that a node has a single log in a
// single format.
//
// The package promises:
//   - levels are mapped one to one (trace is 4 below debug), except those of errors of other nodes (severity.go);
//   - key and value pairs become attributes, and a sub-logger's name the attribute "logger";
//   - a message below the handler's level is not formatted;
//   - a warning about the same node is repeated after half a minute at the earliest (severity.go).
//
// Start reading at [New].
package hclogger

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// LevelTrace is below slog.LevelDebug. Raft logs little at this level.
const LevelTrace = slog.LevelDebug - 4

// New returns a logger that writes to l, at the level of l's handler, and whose SetLevel does nothing. A repeated
// warning about the same peer is logged every 30 seconds at most, with the number of skipped warnings.
func New(l *slog.Logger) hclog.Logger {
	to := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off}) // writes nothing itself
	to.RegisterSink(&sink{slog: l})
	return to
}

// sink receives the messages of a logger and of its sub-loggers.
type sink struct {
	slog  *slog.Logger
	limit limiter
}

func level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return LevelTrace
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// Accept logs a message of the logger of that name. The arguments of its With come first in args.
func (s *sink) Accept(name string, lv hclog.Level, msg string, args ...any) {
	to := severity(lv, msg, args)
	if lv == hclog.Off || !s.slog.Enabled(context.Background(), to) {
		return
	}
	attrs := attributes(args)
	skipped, ok := s.limit.admit(to, msg, attrs)
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	if name != "" {
		attrs = append(attrs, slog.String("logger", name))
	}
	s.slog.LogAttrs(context.Background(), to, msg, attrs...)
}

// attributes pairs keys with values like hclog. A last value without a key gets hclog's key for that case.
func attributes(args []any) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(args)/2+2)
	for ; len(args) >= 2; args = args[2:] {
		attrs = append(attrs, slog.Any(key(args[0]), value(args[1])))
	}
	if len(args) == 1 {
		attrs = append(attrs, slog.Any(hclog.MissingKey, value(args[0])))
	}
	return attrs
}

func key(k any) string {
	if s, ok := k.(string); ok {
		return s
	}
	return fmt.Sprint(k)
}

// value converts errors, and hclog's own formats, which slog would print as lists, to text.
func value(v any) any {
	switch v := v.(type) {
	case hclog.Format:
		if len(v) > 0 {
			if format, ok := v[0].(string); ok {
				return fmt.Sprintf(format, v[1:]...)
			}
		}
		return fmt.Sprint([]any(v)...)
	case error:
		return v.Error()
	default:
		return v
	}
}
