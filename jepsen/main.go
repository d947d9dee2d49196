// Command jepsen runs a cluster of real processes, makes faults, and judges the history of its clients.
//
//	go run ./jepsen --workload all --nemesis mixed --time 60s
//
// Exit status 0 means that every checker found the history valid, no process ended by itself, every node served again
// after all faults were healed, and all replicas agreed at the end. Status 1 means that something was found, and 2 that
// nothing could be shown. A seed determines the schedule of faults.
//
// The server is a black box: of the project this command imports only package protocol and what is below it.
//
//	main ─► options ─► run ─► cluster   processes of a target        ┐
//	                    │      network   namespaces, or proxies       │ world
//	                    ├────► schedule  which faults, and when       │
//	                    ├────► nemesis   injects and heals faults     ┘
//	                    ├────► workload ─► wire   clients             ┐
//	                    │         └──────► history their operations   │ record
//	                    └────► checker   judges; report has verdicts  ┘
//
// With --picture jepsen runs itself twice, and package picture draws both histories.
//
// Start reading at run.go. README.md is the manual. HOOKS.md has the hooks that the server provides.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitValid   = 0
	exitInvalid = 1
	exitUnknown = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "jepsen:", err)
		code = exitUnknown
	}
	stop()
	os.Exit(code)
}
