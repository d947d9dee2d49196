package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		setTimerSlack()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		switch err := c.run(ctx, args[1:], stdout, stderr); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.As(err, new(usageError)):
			fmt.Fprintf(stderr, "holdfast %s: %v\n", c.name, err)
			return 2
		default:
			fmt.Fprintf(stderr, "holdfast %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "holdfast: unknown command %q\n\n%s", args[0], usage)
	return 2
}

type command struct {
	name string
	run  func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"serve", serve},
		{"demo", demo},
		{"docs", docs},
		{"version", version},
		{"help", help},
	}
}

const usage = `Holdfast is a lock server that speaks the Redis protocol; what is locked is on a majority's disks.

  holdfast serve      run a node: alone, or with --name, --peer-addr and --initial-cluster as a member
  holdfast demo       run three nodes on this machine, ports 6379 to 6381
  holdfast docs       print the reference: 'docs flags' or 'docs commands', in Markdown
  holdfast version    print the version

'holdfast serve --help' and 'holdfast demo --help' list the flags.
`

func help(_ context.Context, _ []string, stdout, _ io.Writer) error {
	_, err := io.WriteString(stdout, usage)
	return err
}
