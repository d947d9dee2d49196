// Command etcd is the peer "etcd" of the benchmark, in a module of its own so that nothing else
// depends on etcd's modules: `etcd serve FLAGS` is etcd's server with its own flags, and without
// arguments the program runs a workload, as package drive has it, with etcd's client.
//
// Start reading at [txn].
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/holdfast/holdfast/bench/internal/drive"
	"github.com/holdfast/holdfast/bench/internal/target"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		etcdmain.Main(append(os.Args[:1], os.Args[2:]...))
		return
	}
	target.Register(target.Etcd, dialTxn)
	target.Register(target.EtcdMutex, dialMutex)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := drive.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}
