package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// Cluster is the servers of a peer. Only pids is safe for concurrent use.
type Cluster struct {
	dir     string
	servers []*server
	driver  string // see target.Target
	// independent is set if all servers are masters.
	independent bool
	// distance is the distance between the servers, nil if it cannot be set.
	distance *distance
	// isReady, if not nil, replaces the readiness check of RESP servers.
	isReady func(context.Context) error
}

// server is a process that can be restarted.
type server struct {
	fleet.Process
	addr string // for clients; "" for a sentinel
	dir  string // folder of the server's data and output
	// configure writes the configuration to an empty folder and returns the command.
	configure func(dir string) ([]string, error)
	command   []string
}

// add starts a server in its own folder, which also receives the output.
func (c *Cluster) add(name, addr string, configure func(dir string) ([]string, error)) error {
	s := &server{addr: addr, dir: filepath.Join(c.dir, name), configure: configure}
	s.Name, s.Log = name, filepath.Join(s.dir, "output.log")
	if err := s.empty(); err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return s.start()
}

// empty resets the folder to its state before the first start.
func (s *server) empty() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	var err error
	s.command, err = s.configure(s.dir)
	return err
}

func (s *server) start() error { return s.Start(exec.Command(s.command[0], s.command[1:]...)) }

func (c *Cluster) addrs() []string {
	var all []string
	for _, s := range c.servers {
		if s.addr != "" {
			all = append(all, s.addr)
		}
	}
	return all
}

// pids returns the running processes, including sentinels.
func (c *Cluster) pids() []int {
	var all []int
	for _, s := range c.servers {
		all = append(all, s.PID())
	}
	return all
}

func (c *Cluster) at(addr string) (*server, error) {
	for _, s := range c.servers {
		if s.addr == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server listens at %s", addr)
}

// Kill kills a server.
func (c *Cluster) Kill(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	s.Process.Kill()
	return nil
}

// Freeze stops a server with its connections open. A frozen server can be killed.
func (c *Cluster) Freeze(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(s.PID())
}

// Thaw resumes a frozen server.
func (c *Cluster) Thaw(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.Signal(syscall.SIGCONT)
}

// Empty removes a killed server's data.
func (c *Cluster) Empty(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.empty()
}

// Start restarts a killed server.
func (c *Cluster) Start(_ context.Context, addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.start()
}

// Part sets the round trip between the servers.
func (c *Cluster) Part(roundTrip time.Duration) error {
	if c.distance == nil {
		return errors.New("these servers cannot be put apart")
	}
	c.distance.oneWay.Store(int64(roundTrip / 2))
	return nil
}

const askTimeout = time.Second

// Ready waits until one server is the master (all if they are independent) and accepts writes, and the others follow.
func (c *Cluster) Ready(ctx context.Context) error {
	var all []*fleet.Process
	for _, s := range c.servers {
		all = append(all, &s.Process)
	}
	return fleet.Await(ctx, c.ready, all...)
}

func (c *Cluster) ready(ctx context.Context) error {
	if c.isReady != nil {
		return c.isReady(ctx)
	}
	masters := 0
	for _, addr := range c.addrs() {
		role, err := resp.Ask(ctx, addr, askTimeout, "ROLE")
		switch {
		case err != nil:
			return err
		case len(role.Elems) == 0:
			return fmt.Errorf("%s has no role", addr)
		case role.Elems[0].Str == "master":
			masters++
			if _, err := resp.Ask(ctx, addr, askTimeout, "SET", "bench:ready", "1", "PX", "1000"); err != nil {
				return err
			}
		case len(role.Elems) < 4 || role.Elems[3].Str != "connected":
			return fmt.Errorf("%s does not follow yet", addr)
		}
	}
	if c.independent || masters == 1 {
		return nil
	}
	return fmt.Errorf("there are %d masters", masters)
}

func (c *Cluster) stop() {
	for _, s := range c.servers {
		s.Kill()
	}
	if c.distance != nil {
		c.distance.close()
	}
}

// logTails returns the last lines of each server's output.
func (c *Cluster) logTails() string {
	var b strings.Builder
	for _, s := range c.servers {
		fmt.Fprintf(&b, "%s wrote:\n  %s\n", s.Name, strings.ReplaceAll(s.Tail(8), "\n", "\n  "))
	}
	return b.String()
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}
