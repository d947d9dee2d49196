// Command jepsen runs a cluster of real processes, makes faults, and judges the history of its clients.
//
//	go run ./jepsen --workload all --nemesis mixed --time 60s
//
// It promises: exit status 0 only if every checker found the history valid, no process ended by itself, every node
// served again after all faults were mended, and all replicas agreed in the end; 1 if something was found; 2 if nothing
// could be shown. The same seed gives the same schedule of faults.
//
// The server is a black box: of the project jepsen imports protocol and nothing else.
//
//	main ─► options ─► run ─► cluster   processes of a target        ┐
//	                    │      network   namespaces, or proxies       │ world
//	                    ├────► schedule  what is broken when          │
//	                    ├────► nemesis   breaks and mends             ┘
//	                    ├────► workload ─► wire   clients             ┐
//	                    │         └──────► history what they saw      │ record
//	                    └────► checker   judges; report writes it down┘
//
// With --picture jepsen runs itself twice, and package picture draws both histories.
//
// Start reading at run.go. README.md is the manual, HOOKS.md what is asked of the server.
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
