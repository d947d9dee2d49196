package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/secrets"
)

// serve runs one node until ctx ends or the node fails.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	check := false
	c, err := serveFlags(&check).parse(args, stdout)
	if err != nil {
		return err
	}
	strange, err := strangeVariables(os.Environ())
	if err != nil {
		return usageError{err}
	}
	if check {
		return checkServe(c, strange, stdout)
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	logger, err := newLogger(c.LogConfig, stderr)
	if err != nil {
		return usageError{err}
	}
	for _, note := range strange {
		logger.Warn("unknown setting", "node", c.Name, "variable", note)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // by default it would end the process
	defer signal.Stop(hangup)
	s, err := server.New(c, logger.With("node", c.Name))
	if unusable := new(secrets.Unusable); errors.As(err, unusable) {
		return usageError{err} // a restart by a supervisor would fail, too
	}
	if err != nil {
		return err
	}
	s.LimitHeap()
	tell := func(state string) {
		if err := notify(state); err != nil {
			logger.Warn("service manager not told", "error", err)
		}
	}
	defer context.AfterFunc(ctx, func() { tell("STOPPING=1") })()
	defer reloadOnHangup(hangup, s)()
	tell("READY=1")
	return s.Run(ctx)
}

// reloadOnHangup reloads the node's credentials at each signal, until stop is called.
func reloadOnHangup(signals <-chan os.Signal, s *server.Server) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
				s.Reload("SIGHUP")
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

func serveFlags(check *bool) flagSet {
	return flagSet{command: "serve", own: []option{
		{
			name: "check", value: check,
			help: "prove flags, environment, files, certificates and addresses, and start nothing; status 2 if " +
				"something is wrong",
		},
	}}
}

// checkServe prints the mistakes in the settings, or that there are none.
func checkServe(c server.Config, strange []string, stdout io.Writer) error {
	notes, err := server.Check(c)
	if err == nil {
		_, err = newLogger(c.LogConfig, io.Discard)
	}
	if err != nil {
		return usageError{err}
	}
	for _, note := range append(strange, notes...) {
		fmt.Fprintln(stdout, note)
	}
	_, err = fmt.Fprintln(stdout, "nothing is wrong")
	return err
}

func newLogger(c server.LogConfig, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("log-level %q: use debug, info, warn or error", c.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.StringValue(a.Value.Duration().String()) // a number would be nanoseconds without a unit
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}

// strangeVariables returns variables that have the prefix of settings but belong to no flag. They may be another
// program's, such as Kubernetes's for a service called holdfast, and are only logged. A name that is close to a flag's
// is an error, as the node would run without the setting. Values are not shown, as they may be secrets.
func strangeVariables(environ []string) (others []string, err error) {
	var settings, known []string
	c := server.DefaultConfig()
	for _, o := range options(&c) {
		if o.heading == "" {
			settings = append(settings, o.env())
		}
	}
	client := newClientFlags()
	for _, o := range append(client.lockRows(), newImportOwn().sourceRows()...) {
		known = append(known, o.env())
	}
	// `holdfast lock` sets some of these for its command, and this program the others for itself.
	known = append(known, envFileVariable, "HOLDFAST_LOCK", "HOLDFAST_OWNER", "HOLDFAST_FENCE",
		"HOLDFAST_TIMER_SLACK_IS_SET")
	var slips []string
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(settings, name) || slices.Contains(known, name) {
			continue
		}
		nearest := nearestOf(name, settings)
		hint := fmt.Sprintf("%s: no flag has this variable; the nearest is %s (--%s)", name, nearest, flagOf(nearest))
		if distance(name, nearest) <= max(1, (len(name)-len(variablePrefix))/4) {
			slips = append(slips, hint)
		} else {
			others = append(others, hint)
		}
	}
	if slips != nil {
		return nil, fmt.Errorf("%s", strings.Join(slips, "; "))
	}
	return others, nil
}

// notify sends the process's state, such as "READY=1", to the service manager, as sd_notify(3) does. It does nothing
// without NOTIFY_SOCKET.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
