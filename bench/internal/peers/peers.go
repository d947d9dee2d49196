package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/target"
)

// Row is one peer.
type Row struct {
	Name  string
	About string
	// Cluster names the servers; rows with the same name share them.
	Cluster string
	Via     target.Via
	Wait    int
	// Primary: clients know the first server alone.
	Primary bool
	// Failover: another server takes over by itself when the leader dies.
	Failover bool
	servers  func(context.Context, *builder) error
}

// Rows are the peers.
func Rows() []Row {
	return []Row{
		{Name: "redis", Via: target.ViaSpread, servers: redisMemory, About: "one redis-server, nothing on disk"},
		{Name: "redis-always", Via: target.ViaSpread, servers: redisAlways, About: "one redis-server, appendfsync always"},
		{
			Name: "redis-wait", Via: target.ViaSpread, Primary: true, Wait: 1, servers: redisReplicated,
			About: "redis-server with two replicas, appendfsync always, WAIT 1 after each acquire",
		},
		{Name: "redis-sentinel", Via: target.ViaLeader, Failover: true, servers: redisSentinel, About: "redis-server with two replicas and three sentinels, down-after 1 s"},
		{Name: "redlock", Via: target.ViaRedlock, servers: redisIndependent, About: "Redlock over three redis-servers, appendfsync always"},
		{Name: "holdfast", Via: target.ViaLeader, Failover: true, servers: holdfast(3), About: "three nodes, clients at the leader"},
		{Name: "holdfast-followers", Cluster: "holdfast", Via: target.ViaFollowers, servers: holdfast(3), About: "the same three nodes, clients at the followers"},
		{Name: "holdfast-spread", Cluster: "holdfast", Via: target.ViaSpread, servers: holdfast(3), About: "the same three nodes, clients at all of them"},
		{Name: "holdfast-bolt", Via: target.ViaLeader, Failover: true, servers: holdfast(3, "--log-store", "bolt"), About: "three nodes with --log-store bolt"},
		{Name: "holdfast-1", Via: target.ViaLeader, servers: holdfast(1), About: "a single node"},
		{Name: "holdfast-5", Via: target.ViaLeader, Failover: true, servers: holdfast(5), About: "five nodes"},
	}
}

// Names are the rows' names.
func Names() []string {
	var names []string
	for _, r := range Rows() {
		names = append(names, r.Name)
	}
	return names
}

// Options say where.
type Options struct {
	// Dir gets a folder that [Peers.Stop] removes.
	Dir string
	// Holdfast is a binary to use instead of building one.
	Holdfast string
}

// Subject is a peer that runs.
type Subject struct {
	Target target.Target
	// Cluster is set when its servers can fail over.
	Cluster *Cluster
}

// Peers are all that run.
type Peers struct {
	Subjects []Subject
	dir      string
	clusters map[string]*Cluster
}

// startLimit is how long all servers of a peer may take to be ready.
const startLimit = 30 * time.Second

// Start starts the peers of these names.
func Start(ctx context.Context, names []string, o Options) (*Peers, error) {
	dir, err := os.MkdirTemp(o.Dir, "peers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for peers: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	p := &Peers{dir: dir, clusters: make(map[string]*Cluster)}
	b := &builder{dir: dir, holdfast: o.Holdfast}
	for _, name := range names {
		if err := p.add(ctx, name, b); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), p.Stop())
		}
	}
	return p, nil
}

func (p *Peers) add(ctx context.Context, name string, b *builder) error {
	rows := Rows()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no peer %q, but %s", name, strings.Join(Names(), ", "))
	}
	row := rows[i]
	if row.Cluster == "" {
		row.Cluster = row.Name
	}
	c := p.clusters[row.Cluster]
	if c == nil {
		b.cluster = &Cluster{dir: filepath.Join(p.dir, row.Cluster), independent: row.Via == target.ViaRedlock}
		c = b.cluster
		p.clusters[row.Cluster] = c
		if err := row.servers(ctx, b); err != nil {
			return err
		}
		ready, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		if err := c.Ready(ready); err != nil {
			return errors.Join(err, errors.New(c.logTails()))
		}
	}
	addrs := c.addrs()
	if row.Primary {
		addrs = addrs[:1]
	}
	t := target.Target{Name: name, Addrs: addrs, Via: row.Via, Wait: row.Wait, PIDs: c.pids}
	s := Subject{Target: t}
	if row.Failover {
		s.Cluster = c
	}
	p.Subjects = append(p.Subjects, s)
	return nil
}

// Stop kills everything and removes what it stored.
func (p *Peers) Stop() error {
	var errs error
	for _, c := range p.clusters {
		errs = errors.Join(errs, c.stop())
	}
	return errors.Join(errs, os.RemoveAll(p.dir))
}

// builder makes the servers of one cluster after another.
type builder struct {
	dir      string
	holdfast string
	cluster  *Cluster
}

// binary is Holdfast's, built once.
func (b *builder) binary(ctx context.Context) (string, error) {
	if b.holdfast != "" {
		return filepath.Abs(b.holdfast)
	}
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	out := filepath.Join(b.dir, "bin-holdfast")
	build := exec.CommandContext(ctx, "go", "build", "-o", out, "./cmd/holdfast")
	build.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build holdfast: %w\n%s", err, text)
	}
	b.holdfast = out
	return out, nil
}
