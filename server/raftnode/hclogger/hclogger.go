// Package hclogger lets hashicorp's libraries log through log/slog, so that a
// node has a single log in a single format.
//
// The package promises: levels are mapped one to one (trace is 4 below debug), but for errors that are
// not this node's (severity.go); key and value pairs become attributes, a sub-logger's name
// becomes the attribute "logger"; what the handler would not print costs nothing; and a
// complaint about the same node is not repeated for half a minute (severity.go).
//
// Start reading at [New].
package hclogger

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// LevelTrace is below slog.LevelDebug. Raft logs little at this level.
const LevelTrace = slog.LevelDebug - 4

// New returns a logger that writes to l, at the level of l's handler. SetLevel does nothing, since
// the operator has set the level already. A warning that is repeated about the same peer is logged
// every 30 seconds at most, with the number of skipped warnings.
func New(l *slog.Logger) hclog.Logger { return &logger{slog: l, limit: new(limiter)} }

// logger is an hclog.Logger.
type logger struct {
	slog  *slog.Logger // has the attributes of With already, not the name
	limit *limiter     // shared by all that derive from a call of New
	name  string
	args  []any // of With, for ImpliedArgs
}

var _ hclog.Logger = (*logger)(nil)

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

// Log does the work of all the methods named after levels.
func (l *logger) Log(lv hclog.Level, msg string, args ...any) {
	to := severity(lv, msg, args)
	if lv == hclog.Off || !l.slog.Enabled(context.Background(), to) {
		return
	}
	attrs := attributes(args)
	skipped, ok := l.limit.admit(to, msg, attrs)
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	if l.name != "" {
		attrs = append(attrs, slog.String("logger", l.name))
	}
	l.slog.LogAttrs(context.Background(), to, msg, attrs...)
}

func (l *logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *logger) enabled(lv hclog.Level) bool {
	return l.slog.Enabled(context.Background(), level(lv))
}

func (l *logger) IsTrace() bool { return l.enabled(hclog.Trace) }
func (l *logger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *logger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *logger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *logger) IsError() bool { return l.enabled(hclog.Error) }

func (l *logger) ImpliedArgs() []any { return l.args }

func (l *logger) With(args ...any) hclog.Logger {
	attrs := attributes(args)
	with := make([]any, len(attrs))
	for i, a := range attrs {
		with[i] = a
	}
	all := append(append([]any(nil), l.args...), args...)
	return &logger{slog: l.slog.With(with...), limit: l.limit, name: l.name, args: all}
}

func (l *logger) Name() string { return l.name }

func (l *logger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *logger) ResetNamed(name string) hclog.Logger {
	return &logger{slog: l.slog, limit: l.limit, name: name, args: l.args}
}

func (l *logger) SetLevel(hclog.Level) {}

func (l *logger) GetLevel() hclog.Level {
	for _, lv := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error} {
		if l.enabled(lv) {
			return lv
		}
	}
	return hclog.Off
}

func (l *logger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter takes each Write as a message. The level is what a prefix such as "[ERR]" says, if
// the options ask for that; else info.
func (l *logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	w := &writer{logger: l}
	if o != nil {
		w.infer, w.force = o.InferLevels, o.ForceLevel
	}
	return w
}

type writer struct {
	logger *logger
	infer  bool
	force  hclog.Level
}

func (w *writer) Write(b []byte) (int, error) {
	lv, msg := hclog.Info, strings.TrimRight(string(b), " \t\r\n")
	if prefix, rest, ok := strings.Cut(msg, "]"); ok && w.infer && strings.HasPrefix(prefix, "[") {
		if found, ok := prefixes[prefix[1:]]; ok {
			lv, msg = found, strings.TrimSpace(rest)
		}
	}
	if w.force != hclog.NoLevel {
		lv = w.force
	}
	w.logger.Log(lv, msg)
	return len(b), nil
}

var prefixes = map[string]hclog.Level{
	"TRACE": hclog.Trace, "DEBUG": hclog.Debug, "INFO": hclog.Info,
	"WARN": hclog.Warn, "ERR": hclog.Error, "ERROR": hclog.Error,
}

// attributes pairs keys with values as hclog does: a last value without a key is kept under hclog's
// name for such a value.
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

// value makes text of hclog's own wrappers, which slog would print as numbers or structures.
func value(v any) any {
	switch v := v.(type) {
	case hclog.Format:
		if len(v) > 0 {
			if format, ok := v[0].(string); ok {
				return fmt.Sprintf(format, v[1:]...)
			}
		}
		return fmt.Sprint([]any(v)...)
	case hclog.Hex:
		return fmt.Sprintf("%#x", int(v))
	case hclog.Octal:
		return fmt.Sprintf("%#o", int(v))
	case hclog.Binary:
		return fmt.Sprintf("%#b", int(v))
	case hclog.Quote:
		return string(v)
	case error:
		return v.Error()
	default:
		return v
	}
}
