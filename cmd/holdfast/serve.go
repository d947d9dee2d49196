package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast/holdfast/server"
)

// serve runs one node until ctx ends or the node must not go on.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := serveFlags().parse(args, stdout)
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	logger, err := newLogger(c.LogConfig, stderr)
	if err != nil {
		return usageError{err}
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // which would end the process
	defer signal.Stop(hangup)
	s, err := server.New(c, logger.With("node", c.Name))
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

// reloadOnHangup has the node read its credentials again at each signal, until stop is called.
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

func serveFlags() flagSet { return flagSet{command: "serve"} }

func newLogger(c server.LogConfig, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("log-level %q: use debug, info, warn or error", c.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
