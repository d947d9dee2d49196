package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/server"
)

// demoNodes is the size of the demo's cluster; a peer port is the client port plus peerPortOffset.
const (
	demoNodes      = 3
	peerPortOffset = 1000
	demoStartLimit = 30 * time.Second
)

type demoFlags struct {
	port int
	keep bool
}

// demo runs three nodes as three processes until ctx ends or all have died.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := demoFlags{port: 6379}
	c, err := parseConfig("demo", args, stderr, func(fs *flag.FlagSet) {
		fs.IntVar(&f.port, "port", f.port, "client port of the first node; the others have the next two")
		fs.BoolVar(&f.keep, "keep", f.keep, "keep the data folder at the end")
	})
	if err != nil {
		return err
	}
	if f.port < 1 || f.port+peerPortOffset+demoNodes > 65535 {
		return usageError{fmt.Errorf("port %d: use 1 to %d", f.port, 65535-peerPortOffset-demoNodes)}
	}
	d, err := newDemo(c, f, stdout, stderr)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

// cluster is the demo's processes.
type cluster struct {
	nodes          []*process
	dir            string
	removeDir      bool
	stdout, stderr io.Writer
}

// process is one node of the demo. Its fields are set before it starts; done closes when it has ended.
type process struct {
	name, addr string
	cmd        *exec.Cmd
	done       chan struct{}
	err        error // how it ended; valid once done is closed
}

func newDemo(c server.Config, f demoFlags, stdout, stderr io.Writer) (*cluster, error) {
	d := &cluster{stdout: stdout, stderr: &syncWriter{w: stderr}}
	if c.Node.DataDir == server.DefaultConfig().Node.DataDir {
		dir, err := os.MkdirTemp("", "holdfast-demo-")
		if err != nil {
			return nil, fmt.Errorf("create data folder: %w", err)
		}
		d.dir, d.removeDir = dir, !f.keep
	} else {
		d.dir = c.Node.DataDir
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	var members []string
	for i := range demoNodes {
		members = append(members, fmt.Sprintf("n%d=127.0.0.1:%d", i+1, f.port+peerPortOffset+i))
	}
	for i := range demoNodes {
		name, addr := fmt.Sprintf("n%d", i+1), "127.0.0.1:"+strconv.Itoa(f.port+i)
		if err := free(addr); err != nil {
			return nil, err
		}
		cmd := exec.Command(exe, "serve", "--name", name, "--addr", addr,
			"--peer-addr", "127.0.0.1:"+strconv.Itoa(f.port+peerPortOffset+i),
			"--data-dir", filepath.Join(d.dir, name),
			"--initial-cluster", strings.Join(members, ","),
			"--log-level", demoLogLevel(c.Log.Level))
		cmd.Stderr = d.stderr
		ownGroup(cmd)
		d.nodes = append(d.nodes, &process{name: name, addr: addr, cmd: cmd, done: make(chan struct{})})
	}
	return d, nil
}

// demoLogLevel keeps the demo's how-to readable unless the user asked for more.
func demoLogLevel(asked string) string {
	if asked == server.DefaultConfig().Log.Level {
		return "warn"
	}
	return asked
}

// free fails with one clear line when addr is taken.
func free(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (--port moves the demo)", err)
	}
	return ln.Close()
}

func (d *cluster) run(ctx context.Context) error {
	defer d.stop()
	for _, p := range d.nodes {
		if err := p.start(); err != nil {
			return err
		}
	}
	waitCtx, cancel := context.WithTimeout(ctx, demoStartLimit)
	defer cancel()
	leader, err := d.waitServing(waitCtx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	d.howTo(leader)
	return d.watch(ctx)
}

func (p *process) start() error {
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

// watch tells of nodes that die, and returns when ctx ends or none is left.
func (d *cluster) watch(ctx context.Context) error {
	ended := make(chan *process)
	stop := make(chan struct{})
	defer close(stop)
	for _, p := range d.nodes {
		go func() {
			<-p.done
			select {
			case ended <- p:
			case <-stop:
			}
		}()
	}
	for left := len(d.nodes); left > 0; left-- {
		select {
		case p := <-ended:
			fmt.Fprintf(d.stdout, "\n%s has ended (%v). Start it again with:\n  %s\n", p.name, p.err, strings.Join(p.cmd.Args, " "))
		case <-ctx.Done():
			fmt.Fprintln(d.stdout, "\nstopping")
			return nil
		}
	}
	return errors.New("all nodes have ended")
}

// stop ends what still runs, gracefully first, and removes the data unless it is to be kept.
func (d *cluster) stop() {
	for _, p := range d.nodes {
		if p.cmd.Process != nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	limit := time.After(server.DefaultConfig().Timing.Shutdown + time.Second)
	for _, p := range d.nodes {
		if p.cmd.Process == nil {
			continue
		}
		select {
		case <-p.done:
		case <-limit:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	if d.removeDir {
		_ = os.RemoveAll(d.dir)
		return
	}
	fmt.Fprintf(d.stdout, "data kept in %s\n", d.dir)
}

func (d *cluster) howTo(leader string) {
	w := d.stdout
	fmt.Fprintf(w, "Holdfast serves: three nodes, one lock server.\n\n")
	var leaderPID int
	for _, p := range d.nodes {
		role := "follows"
		if p.name == leader {
			role, leaderPID = "leads", p.cmd.Process.Pid
		}
		fmt.Fprintf(w, "  %s  %s  pid %d  %s\n", p.name, p.addr, p.cmd.Process.Pid, role)
	}
	first := portOf(d.nodes[0].addr)
	last := portOf(d.nodes[len(d.nodes)-1].addr)
	fmt.Fprintf(w, `
Take a lock on one node, see it on another, release it with the script that every lock library sends:

  redis-cli -p %[1]s SET lock:a token-1 NX PX 30000
  redis-cli -p %[2]s PTTL lock:a
  redis-cli -p %[2]s INCR fence:a
  redis-cli -p %[1]s EVAL "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end" 1 lock:a token-1

Kill the leader; what was acknowledged is still there:

  kill -9 %[3]d

Data is in %[4]s. Ctrl-C stops everything.
`, first, last, leaderPID, d.dir)
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// syncWriter lets several processes write lines to one terminal.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}
