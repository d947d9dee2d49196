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
)

// Cluster is the servers of a peer, for one goroutine (but for pids).
type Cluster struct {
	dir     string
	servers []*server
	driver  string // see target.Target
	// independent servers are masters all of them.
	independent bool
	// isReady overrides how RESP servers are asked whether all take part.
	isReady func(context.Context) error
}

// server is a process that can be started again.
type server struct {
	name string
	addr string // where clients connect; "" for a sentinel
	dir  string // what the server stores, and its output
	// configure writes configuration to an empty folder and makes the command.
	configure func(dir string) ([]string, error)
	command   []string
	cmd       *exec.Cmd
	done      chan struct{} // closed when the process has ended
}

// add starts a server by the command that is made for the server's folder, which also gets the output.
func (c *Cluster) add(name, addr string, configure func(dir string) ([]string, error)) error {
	s := &server{name: name, addr: addr, dir: filepath.Join(c.dir, name), configure: configure}
	if err := s.empty(); err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return s.start()
}

// empty makes the folder as it was before the server's first start.
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

func (s *server) log() string { return filepath.Join(s.dir, "output.log") }

func (s *server) start() error {
	out, err := os.OpenFile(s.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	return nil
}

func (s *server) kill() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	err := s.cmd.Process.Kill()
	if s.done != nil {
		<-s.done
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (s *server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (c *Cluster) addrs() []string {
	var all []string
	for _, s := range c.servers {
		if s.addr != "" {
			all = append(all, s.addr)
		}
	}
	return all
}

// pids are the processes that run now, sentinels included.
func (c *Cluster) pids() []int {
	var all []int
	for _, s := range c.servers {
		all = append(all, s.cmd.Process.Pid)
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

// Kill ends a server at once.
func (c *Cluster) Kill(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.kill()
}

// Freeze stops a server, whose connections stay open; a frozen server can be killed.
func (c *Cluster) Freeze(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(s.cmd.Process.Pid)
}

// Thaw lets a frozen server go on.
func (c *Cluster) Thaw(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.cmd.Process.Signal(syscall.SIGCONT)
}

// Empty removes what a killed server stored.
func (c *Cluster) Empty(addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.empty()
}

// Start starts a killed server again.
func (c *Cluster) Start(_ context.Context, addr string) error {
	s, err := c.at(addr)
	if err != nil {
		return err
	}
	return s.start()
}

const (
	askTimeout = time.Second
	askPause   = 50 * time.Millisecond
)

// Ready waits until one server is the master (all servers when they are independent)
// and takes writes, and the others follow.
func (c *Cluster) Ready(ctx context.Context) error {
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		for _, s := range c.servers {
			if s.ended() {
				return fmt.Errorf("%s has ended: %w", s.name, err)
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(askPause):
		}
	}
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

func (c *Cluster) stop() error {
	var errs error
	for _, s := range c.servers {
		errs = errors.Join(errs, s.kill())
	}
	return errs
}

// logTails are the last lines that each server wrote.
func (c *Cluster) logTails() string {
	var b strings.Builder
	for _, s := range c.servers {
		text, _ := os.ReadFile(s.log())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "%s wrote:\n  %s\n", s.name, strings.Join(lines[max(0, len(lines)-8):], "\n  "))
	}
	return b.String()
}

// freeAddrs are loopback addresses with ports that are not in use.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// All are held until all are known, so that no two are alike.
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}
