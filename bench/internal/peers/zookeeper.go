package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/protocol/fleet"
)

const (
	zookeeperServers = 3
	// zookeeperJar is the jar of Debian's package, which names the other jars.
	zookeeperJar = "/usr/share/java/zookeeper.jar"
)

var errNoZooKeeper = errors.New("it needs java and Debian's package zookeeper (" + zookeeperJar + ")")

// zookeeper is three servers with the settings of the manual's example. They sync every transaction by default.
func zookeeper(ctx context.Context, b *builder) error {
	java, err := exec.LookPath("java")
	if _, jarErr := os.Stat(zookeeperJar); err != nil || jarErr != nil {
		return errNoZooKeeper
	}
	path, err := b.driver(ctx, "zookeeper")
	if err != nil {
		return err
	}
	addrs, err := fleet.Reserve(3 * zookeeperServers)
	if err != nil {
		return err
	}
	clients, peers, elections := addrs[:zookeeperServers], addrs[zookeeperServers:2*zookeeperServers],
		addrs[2*zookeeperServers:]
	c := b.cluster
	c.driver = path
	c.isReady = func(ctx context.Context) error { return zookeeperReady(ctx, clients) }
	lines := []string{
		"tickTime=2000", "initLimit=10", "syncLimit=5", "maxClientCnxns=0", "admin.enableServer=false",
		"4lw.commands.whitelist=srvr",
	}
	for i := range zookeeperServers {
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", i+1, port(peers[i]), port(elections[i])))
	}
	for i, addr := range clients {
		err := c.add(fmt.Sprintf("zk%d", i+1), addr, func(dir string) ([]string, error) {
			all := append([]string{"dataDir=" + dir, "clientPort=" + port(addr), "clientPortAddress=127.0.0.1"}, lines...)
			config := filepath.Join(dir, "zoo.cfg")
			return []string{
				java, "-Dzookeeper.root.logger=WARN,CONSOLE", "-cp", zookeeperJar,
				"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
			}, errors.Join(
				os.WriteFile(config, []byte(strings.Join(all, "\n")+"\n"), 0o644),
				os.WriteFile(filepath.Join(dir, "myid"), fmt.Appendln(nil, i+1), 0o644),
			)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// zookeeperReady returns an error unless all servers answer, and exactly one of them leads.
func zookeeperReady(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	leaders := 0
	for _, addr := range addrs {
		mode, err := target.ZooKeeperMode(ctx, addr)
		if err != nil {
			return err
		}
		if mode == "leader" {
			leaders++
		}
	}
	if leaders != 1 {
		return fmt.Errorf("there are %d leaders", leaders)
	}
	return nil
}
