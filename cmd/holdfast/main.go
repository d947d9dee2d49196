// Command holdfast runs a node (serve) or a demo of three nodes (demo), runs a command under a lock (lock), manages
// locks and members (locks, cluster), copies keys from a Redis server (import), and prints the pages for users and
// operators (docs).
//
// A wrong flag, a port in use, or a data folder of another node is reported in one line, with exit status 2 for wrong
// usage and 1 for the rest; `holdfast lock` exits with its command's status. A command refuses flags without an effect.
// On Linux serve executes itself once, see timerslack_linux.go. A node's behaviour is in package server. Read flags.go
// next, where one table makes flags, environment and docs; for `holdfast lock` read lock.go and guard.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/holdfast/holdfast/server"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		setTimerSlack()
	}
	ctx, stop := context.Background(), context.CancelFunc(func() {})
	if len(os.Args) > 1 && os.Args[1] != "lock" { // lock forwards signals itself
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// statusRemoved is the exit status of a node that was removed from its cluster. A restart would fail, too.
const statusRemoved = 4

// statusSuperseded is the exit status of a node whose cluster knows a later incarnation. A restart would fail, too.
const statusSuperseded = 5

// run runs the program and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	c, ok := find(args[0])
	if !ok {
		fmt.Fprintf(stderr, "holdfast: unknown command %q\n\n%s", args[0], usage)
		return 2
	}
	status, text := outcome(c.run(ctx, args[1:], stdout, stderr))
	if text != "" {
		fmt.Fprintf(stderr, "holdfast %s: %s\n", c.name, escaped(text))
	}
	return status
}

// outcome returns the exit status of a command that ended with err, and the text to print, "" for none.
func outcome(err error) (status int, text string) {
	own := exitStatus{}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0, ""
	case errors.As(err, &own):
		return own.status, own.text
	case errors.Is(err, server.ErrRemoved):
		return statusRemoved, err.Error()
	case errors.Is(err, server.ErrSuperseded):
		return statusSuperseded, err.Error()
	case errors.As(err, new(usageError)):
		return 2, err.Error()
	}
	return 1, err.Error()
}

type command struct {
	name  string
	other []string // other common names
	run   func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"serve", nil, serve},
		{"demo", nil, demo},
		{"lock", nil, lock},
		{"locks", nil, locks},
		{"cluster", nil, manage},
		{"certs", nil, makeCerts},
		{"import", nil, importKeys},
		{"backup", nil, takeBackup},
		{"inspect", nil, inspect},
		{"restore", nil, restore},
		{"recover", nil, recovery},
		{"docs", nil, docs},
		{"completion", nil, completion},
		{"version", []string{"--version", "-version"}, version},
		{"help", []string{"--help", "-help", "-h"}, help},
	}
}

func find(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name || slices.Contains(c.other, name) {
			return c, true
		}
	}
	return command{}, false
}

const usage = `Holdfast is a lock server that speaks the Redis protocol; what is locked is on a majority's disks.

usage: holdfast command [flags]

  demo       run three nodes on this machine, to try it: ports 6379 to 6381
  serve      run one node: alone, or with --name, --peer-addr and --initial-cluster as a member of a cluster
  lock       run a command while holding a lock: 'holdfast lock NAME -- command'
  locks      list who holds locks and who waits for them, how they were lost, or break one: 'locks history', 'locks break NAME'
  cluster    describe the members of a cluster, or change them: 'holdfast cluster status', 'cluster remove NAME'
  certs      make a CA and certificates for nodes and clients: 'holdfast certs DIR n1=10.0.0.1 n2=10.0.0.2'
  import     copy counters and leases from a Redis server: 'holdfast import --from redis://HOST --match PATTERN'
  backup     write the state of a cluster that serves to a file: 'holdfast backup FILE'
  inspect    say what is in a backup, and prove its checksums: 'holdfast inspect FILE'
  restore    make the data folder of a new cluster of a backup: 'holdfast restore FILE --data-dir DIR'
  recover    make the last node of a cluster that lost its majority a new cluster: 'holdfast recover --data-dir DIR'
  docs       list or print the pages for users and operators: 'docs troubles', 'docs HoldfastDown', 'docs man'
  completion print a script that completes words in a shell: 'source <(holdfast completion bash)'
  version    print the version
  help       print this, or the flags of a command: 'help serve'
`

// help prints the usage, or the flags of the command that args name.
func help(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || wantsHelp(args) {
		_, err := io.WriteString(stdout, usage)
		return err
	}
	c, ok := find(args[0])
	switch {
	case len(args) > 1:
		return unexpected(args[1])
	case !ok:
		return usageError{fmt.Errorf("unknown command %q", args[0])}
	}
	return c.run(ctx, []string{"--help"}, stdout, stderr)
}
