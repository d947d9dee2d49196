// Command holdfast-otel makes spans of OpenTelemetry from the lines of `holdfast serve --audit-log`, and sends them by
// OTLP over HTTP. It is a module of its own, so that nothing else depends on the SDK.
//
// Start reading at span.go: which lines make a span; then read.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

const usage = `usage: holdfast-otel [--follow] [FILE...]

Reads the files of 'holdfast serve --audit-log', of one node or of several together, or standard input, and sends a span
for each wait for a lock and for each hold that has ended, by OTLP over HTTP. OTEL_EXPORTER_OTLP_ENDPOINT and the other
variables of OpenTelemetry say where to, with which headers and under which service.name.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stderr)
	stop()
	os.Exit(status)
}

// run returns the status of the process: 1 if lines could not be read or spans not sent, and 2 for a mistake in args.
func run(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) int {
	flags := flag.NewFlagSet("holdfast-otel", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	follow := flags.Bool("follow", false, "go on at the end of the files, rotated or not, until a signal comes")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case *follow && flags.NArg() == 0:
		fmt.Fprintln(stderr, "holdfast-otel: --follow is for files")
		return 2
	}
	var failed atomic.Bool
	fail := func(err error) {
		failed.Store(true)
		fmt.Fprintln(stderr, "holdfast-otel:", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(fail))
	e := export{
		paths: flags.Args(), follow: *follow, stdin: stdin, lastWithin: lastSpansWithin,
		warn: func(text string) { fmt.Fprintln(stderr, "holdfast-otel:", text) },
	}
	if err := e.run(ctx); err != nil {
		fail(err)
	}
	if failed.Load() {
		return 1
	}
	return 0
}

const (
	// lastSpansWithin is how long the spans that were not sent yet may take after a signal.
	lastSpansWithin = 10 * time.Second
	// resendEvery is the time between two tries to reach a receiver that is away.
	resendEvery = time.Second
	// tellAfter is how long a batch waits before a message says so.
	tellAfter = 15 * time.Second
)

// export is what run does.
type export struct {
	paths      []string
	follow     bool
	stdin      io.Reader
	lastWithin time.Duration // lastSpansWithin
	warn       func(string)
}

func (e *export) run(ctx context.Context) (err error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(e.lastWithin, cancel) })()
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: resendEvery, MaxInterval: 10 * resendEvery, // and no end of its own
	}))
	if err != nil {
		return err
	}
	provider, err := newProvider(ctx, &sender{to, last, giveUp, e.warn}, e.follow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }() // soon after last
	s := newSpanner(provider)
	r, err := openReader(ctx, e.paths, e.stdin, s.add)
	if err != nil {
		return err
	}
	defer r.close()
	if err = r.run(ctx, last, e.follow); err == nil && r.unreadable > 0 {
		err = fmt.Errorf("%d lines could not be read", r.unreadable)
	}
	return err
}

// newProvider returns a provider that drops no span: when the receiver is slow, lines are read more slowly. If it
// follows files, a batch waits for a receiver that is away without an end.
func newProvider(ctx context.Context, to sdk.SpanExporter, follow bool) (*sdk.TracerProvider, error) {
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("holdfast")), resource.WithTelemetrySDK(),
		resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	batches := []sdk.BatchSpanProcessorOption{sdk.WithBlocking()}
	if follow {
		batches = append(batches, sdk.WithExportTimeout(0))
	}
	return sdk.NewTracerProvider(sdk.WithBatcher(to, batches...), sdk.WithIDGenerator(lineIDs{}),
		sdk.WithResource(about)), nil
}

// sender sends batches until last ends. A batch waits for a receiver that cannot be reached, as while it starts again,
// until its context ends. Then the others are given up, too.
type sender struct {
	sdk.SpanExporter
	last   context.Context
	giveUp func()
	warn   func(string)
}

// ExportSpans fails on a batch that the receiver refuses, or that could not be sent in time.
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.last, cancel)()
	defer time.AfterFunc(tellAfter, func() { s.warn("the receiver takes no spans: they wait") }).Stop()
	for try := 0; ; try++ {
		err := s.SpanExporter.ExportSpans(ctx, spans)
		unreached := (*url.Error)(nil)
		switch isUnreached := errors.As(err, &unreached); {
		case err != nil && ctx.Err() != nil:
			s.giveUp()
			return err
		case !isUnreached:
			return err
		case try == 0:
			s.warn(fmt.Sprintf("the receiver cannot be reached, spans wait: %v", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(resendEvery):
		}
	}
}
