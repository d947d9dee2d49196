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
	if err := export(ctx, flags.Args(), *follow, stdin); err != nil {
		fail(err)
	}
	if failed.Load() {
		return 1
	}
	return 0
}

// lastSpansWithin is how long the spans that were not sent yet may take at the end.
const lastSpansWithin = 10 * time.Second

func export(ctx context.Context, paths []string, follow bool, stdin io.Reader) (err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	provider, err := newProvider(ctx, exporter)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), lastSpansWithin)
		defer cancel()
		err = errors.Join(err, provider.Shutdown(last))
	}()
	s := newSpanner(provider)
	r, err := openReader(ctx, paths, stdin, s.add)
	if err != nil {
		return err
	}
	defer r.close()
	if err = r.run(ctx, follow); err == nil && r.unreadable > 0 {
		err = fmt.Errorf("%d lines could not be read", r.unreadable)
	}
	return err
}

// newProvider returns a provider that drops no span: when the receiver is slow, lines are read more slowly.
func newProvider(ctx context.Context, exporter sdk.SpanExporter) (*sdk.TracerProvider, error) {
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("holdfast")), resource.WithTelemetrySDK(),
		resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	return sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithBlocking()), sdk.WithIDGenerator(lineIDs{}),
		sdk.WithResource(about)), nil
}
