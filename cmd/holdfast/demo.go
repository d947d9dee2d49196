package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/server"
)

// demoNodes is the number of the demo's nodes. The ports for peers and monitoring are the client port plus an offset.
const (
	demoNodes      = 3
	peerPortOffset = 1000
	httpPortOffset = 2000
)

// demoOwn are the flags that only the demo has.
type demoOwn struct {
	port     int
	sentinel int // a port, 0 for none
	keep     bool
}

func newDemoOwn() *demoOwn { return &demoOwn{port: 6379} }

// demoFlags returns the flags of serve, except those that the demo sets for each node, and TLS, which its own requests
// to the nodes do not use.
func demoFlags(own *demoOwn) flagSet {
	const (
		perNode = "the demo chooses it for each node"
		founded = "the demo's nodes found a cluster of their own, with a vote each: use holdfast serve"
		audited = "the demo's nodes would write the same file: use holdfast serve"
		inClear = "the demo speaks to its nodes without TLS: use holdfast serve"
	)
	return flagSet{
		command: "demo",
		own: []option{
			{name: "port", value: &own.port, help: "client port of the first node; the others have the next two"},
			{
				name: "sentinel-port", value: &own.sentinel,
				help: "port of the first node for clients of Sentinel; the others have the next two; 0: none",
			},
			{name: "keep", value: &own.keep, help: "keep the data folder at the end"},
		},
		refused: map[string]string{
			"name": perNode, "addr": perNode, "advertise-addr": perNode, "peer-addr": perNode, "initial-cluster": perNode,
			"debug-peer-dial": perNode, "sentinel-addr": perNode, "sentinel-advertise-addr": perNode,
			"http-addr": perNode, "peer-advertise-addr": perNode, "join": founded, "non-voter": founded,
			"audit-log": audited, "audit-log-bytes": audited, "audit-locks": audited,
			"tls-cert": inClear, "tls-key": inClear, "tls-client-ca": inClear, "tls-auth-clients-user": inClear,
			"insecure": "the demo's nodes listen on loopback only",
		},
		defaults: map[string]ownDefault{
			"data-dir":           {"", "a temporary folder, removed at the end"},
			"max-memory":         share(server.DefaultMaxMemory),
			"max-memory-clients": share(server.DefaultMaxMemoryClients),
		},
	}
}

// share divides a percentage of the machine's memory among the nodes.
func share(percentage string) ownDefault {
	percent, _ := strconv.Atoi(strings.TrimSuffix(percentage, "%"))
	each := strconv.Itoa(percent/demoNodes) + "%"
	return ownDefault{each, each + " for each node"}
}

// demo runs three nodes as three processes until ctx ends or all have died.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	own := newDemoOwn()
	c, err := demoFlags(own).parse(args, stdout)
	if err != nil {
		return err
	}
	if own.port < 1 || own.port+httpPortOffset+demoNodes > 65535 {
		return usageError{fmt.Errorf("port %d: use 1 to %d", own.port, 65535-httpPortOffset-demoNodes)}
	}
	if own.sentinel < 0 || own.sentinel+demoNodes > 65535 {
		return usageError{fmt.Errorf("sentinel-port %d: use 1 to %d, or 0", own.sentinel, 65535-demoNodes)}
	}
	d, err := newDemo(c, *own, stdout)
	if err != nil {
		return err
	}
	return d.run(ctx, os.Stdin)
}

func newDemo(c server.Config, own demoOwn, stdout io.Writer) (*cluster, error) {
	password, err := c.ClientPassword()
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	configs := demoConfigs(c, &own)
	if err := movePages(configs); err != nil {
		return nil, err
	}
	for _, c := range configs {
		if err := checkDemoNode(c); err != nil {
			return nil, err
		}
	}
	d := &cluster{stdout: stdout, password: password != ""}
	if err := d.makeFolder(c.DataDir, own.keep); err != nil {
		return nil, err
	}
	for _, c := range configs {
		c.DataDir = filepath.Join(d.dir, c.Name)
		d.nodes = append(d.nodes, &process{
			Process: fleet.Process{Name: c.Name, Log: filepath.Join(d.dir, c.Name+".log")},
			addr:    c.Addr, http: c.HTTPAddr, password: password,
			exe: exe, env: nodeEnvironment(c), grace: c.ShutdownTimeout + time.Second,
		})
	}
	return d, nil
}

// makeFolder creates the folder of the user, or a temporary one.
func (d *cluster) makeFolder(named string, keep bool) (err error) {
	if d.dir = named; named == "" {
		d.removeDir = !keep
		d.dir, err = os.MkdirTemp("", "holdfast-demo-")
	} else {
		err = os.MkdirAll(named, 0o700)
	}
	if err != nil {
		return fmt.Errorf("create data folder: %w", err)
	}
	return nil
}

// demoConfigs returns the configuration of each node.
func demoConfigs(c server.Config, own *demoOwn) []server.Config {
	var members []string
	configs := make([]server.Config, demoNodes)
	for i := range configs {
		n := c
		n.Name = fmt.Sprintf("n%d", i+1)
		n.DataDir = filepath.Join(c.DataDir, n.Name)
		n.Addr = "127.0.0.1:" + strconv.Itoa(own.port+i)
		n.PeerAddr = "127.0.0.1:" + strconv.Itoa(own.port+peerPortOffset+i)
		n.HTTPAddr = "127.0.0.1:" + strconv.Itoa(own.port+httpPortOffset+i)
		if own.sentinel != 0 {
			n.SentinelAddr = "127.0.0.1:" + strconv.Itoa(own.sentinel+i)
		}
		members = append(members, n.Name+"="+n.PeerAddr)
		configs[i] = n
	}
	for i := range configs {
		configs[i].InitialCluster = strings.Join(members, ",")
	}
	return configs
}

// movePages replaces ports for monitoring that are in use. The demo prints the addresses of the pages.
func movePages(configs []server.Config) error {
	for i := range configs {
		ln, err := net.Listen("tcp", configs[i].HTTPAddr)
		if err != nil {
			ln, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return fmt.Errorf("find a port for the page: %w", err)
		}
		defer ln.Close() // after the ports of all nodes are chosen
		configs[i].HTTPAddr = ln.Addr().String()
	}
	return nil
}

// checkDemoNode validates a configuration, so that a mistake is reported once and not by three processes.
func checkDemoNode(c server.Config) error {
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	if _, err := newLogger(c.LogConfig, io.Discard); err != nil {
		return usageError{err}
	}
	for _, addr := range []string{c.Addr, c.PeerAddr, c.HTTPAddr, c.SentinelAddr} {
		if addr == "" {
			continue
		}
		if err := free(addr); err != nil {
			return err
		}
	}
	return nil
}

// free returns an error if addr is in use.
func free(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (--port moves the demo)", err)
	}
	return ln.Close()
}

// nodeEnvironment returns this process's environment with c as its only variables of Holdfast. Other users of the
// machine can read arguments, and not an environment.
func nodeEnvironment(c server.Config) []string {
	defaults := server.DefaultConfig()
	rows, defaultRows := options(&c), options(&defaults)
	var own []string
	ours := make(map[string]bool)
	for i, o := range rows {
		if o.heading != "" {
			continue
		}
		ours[o.env()] = true
		if text := newFlagValue(o.value).String(); text != newFlagValue(defaultRows[i].value).String() {
			own = append(own, o.env()+"="+text)
		}
	}
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !ours[name] {
			env = append(env, e)
		}
	}
	return append(env, own...)
}

func (d *cluster) run(ctx context.Context, stdin io.Reader) error {
	defer d.stop()
	for _, p := range d.nodes {
		if err := p.start(); err != nil {
			return err
		}
	}
	waitCtx, cancel := context.WithTimeout(ctx, demoStartLimit)
	defer cancel()
	err := d.waitServing(waitCtx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	d.howTo()
	ignoreTerminalInput()
	return d.watch(ctx, lines(stdin))
}

// stop stops the running nodes, gracefully if possible, and removes the data folder unless the user keeps it.
func (d *cluster) stop() {
	for _, p := range d.nodes {
		_ = p.Signal(syscall.SIGTERM)
	}
	for _, p := range d.nodes {
		_ = p.Wait(p.grace)
	}
	if d.removeDir {
		_ = os.RemoveAll(d.dir)
		return
	}
	fmt.Fprintf(d.stdout, "data kept in %s\n", d.dir)
}
