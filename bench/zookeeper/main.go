// Command zookeeper runs a workload against ZooKeeper, as package drive has it, with the client
// github.com/go-zookeeper/zk. The program is a module of its own so that nothing else depends on
// that; the servers are Debian's package.
//
// Start reading at [ephemeral].
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast/holdfast/bench/internal/drive"
	"github.com/holdfast/holdfast/bench/internal/target"
)

func main() {
	target.Register(target.ZooKeeper, dialEphemeral)
	target.Register(target.ZooKeeperLock, dialLock)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := drive.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "zookeeper:", err)
		os.Exit(1)
	}
}
