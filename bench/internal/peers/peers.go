// Package peers starts the measured servers on loopback, each with its own folder: redis-server in the common
// configurations for locks, etcd, ZooKeeper, and Holdfast.
//
// It promises that every durable peer syncs to the named disk, that a peer which does not start is skipped and the end
// of its log reported, and that [Peers.Stop] leaves neither a process nor a file. redis-server is found in the PATH.
// Holdfast is built from this tree, and the modules under bench/ for etcd and ZooKeeper are built into the user's
// cache.
//
// Start reading at [Rows].
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
	"github.com/holdfast/holdfast/protocol/fleet"
)

// Row is a peer.
type Row struct {
	Name  string
	About string
	// Cluster names the servers; rows with the same name share them.
	Cluster string
	Via     target.Via
	Kind    target.Kind
	Form    target.Form
	Wait    int
	// Primary is set if clients connect to the first server only.
	Primary bool
	// Users is set if the servers have the users of the workload flood.
	Users bool
	// Failover is set if another server becomes the leader when the leader dies.
	Failover bool
	// Language is the language of the lock library whose driver, under bench/libraries, runs the workloads, or "".
	Language string
	servers  func(context.Context, *builder) error
}

// Rows are the peers.
func Rows() []Row {
	return append([]Row{
		{Name: "redis", Via: target.ViaSpread, servers: redisMemory, About: "one redis-server, nothing on disk"},
		{Name: "redis-always", Via: target.ViaSpread, servers: redisAlways, About: "one redis-server, appendfsync always"},
		{
			Name: "redis-wait", Via: target.ViaSpread, Primary: true, Wait: 1, servers: redisReplicated,
			About: "redis-server with two replicas, appendfsync always, WAIT 1 after each acquire",
		},
		{
			Name: "redis-sentinel", Via: target.ViaLeader, Failover: true, servers: redisSentinel,
			About: "redis-server with two replicas and three sentinels, down-after 1 s",
		},
		{
			Name: "redlock", Via: target.ViaRedlock, servers: redisIndependent,
			About: "Redlock over three redis-servers, appendfsync always",
		},
		{
			Name: "holdfast", Via: target.ViaLeader, Failover: true, servers: holdfast(3),
			About: "three nodes, clients at the leader",
		},
		{
			Name: "holdfast-followers", Cluster: "holdfast", Via: target.ViaFollowers, servers: holdfast(3),
			About: "the same three nodes, clients at the followers",
		},
		{
			Name: "holdfast-native", Cluster: "holdfast", Via: target.ViaLeader, Form: target.Native, servers: holdfast(3),
			About: "the same three nodes, native locks: LOCK.ACQUIRE with WAIT",
		},
		{
			Name: "holdfast-redisson", Cluster: "holdfast", Via: target.ViaLeader, Form: target.Redisson, servers: holdfast(3),
			About: "the same three nodes, locks as Redisson's: a hash, scripts and messages",
		},
		{
			Name: "redis-redisson", Cluster: "redis-always", Via: target.ViaSpread, Form: target.Redisson, servers: redisAlways,
			About: "the redis-server of redis-always, locks as Redisson's",
		},
		{
			Name: "holdfast-users", Via: target.ViaLeader, Users: true, servers: withUsers,
			About: "three nodes with users; the commands a second of one user are limited",
		},
		{
			Name: "zookeeper", Via: target.ViaLeader, Kind: target.ZooKeeper, servers: zookeeper,
			About: "ZooKeeper of Debian's package, three servers, an ephemeral node is created and deleted; clients " +
				"at the leader",
		},
		{
			Name: "zookeeper-lock", Cluster: "zookeeper", Via: target.ViaLeader, Kind: target.ZooKeeperLock, servers: zookeeper,
			About: "the same servers, the lock recipe",
		},
		{
			Name: "holdfast-debug", Via: target.ViaLeader, Failover: true, servers: holdfast(3, "--debug"),
			About: "three nodes that take snapshots on demand",
		},
		{
			Name: "holdfast-before", Via: target.ViaLeader, Failover: true, servers: before,
			About: "three nodes of another build, clients at the leader",
		},
		{
			Name: "holdfast-1core", Via: target.ViaLeader, Failover: true, servers: pinned("0", holdfast(3)),
			About: "three nodes that share one core of the machine",
		},
		{
			Name: "holdfast-native-1core", Cluster: "holdfast-1core", Via: target.ViaLeader, Form: target.Native,
			servers: pinned("0", holdfast(3)), About: "the same three nodes on one core, native locks",
		},
		{Name: "holdfast-1", Via: target.ViaLeader, servers: holdfast(1), About: "a single node"},
		{
			Name: "etcd", Via: target.ViaLeader, Kind: target.Etcd, Failover: true, servers: etcd,
			About: "etcd 3.7, three members, Txn: put if absent with a lease, delete if it has the value; clients " +
				"at the leader",
		},
		{
			Name: "etcd-mutex", Cluster: "etcd", Via: target.ViaLeader, Kind: target.EtcdMutex, servers: etcd,
			About: "the same members, concurrency.Mutex of etcd's client",
		},
		{Name: "holdfast-5", Via: target.ViaLeader, Failover: true, servers: holdfast(5), About: "five nodes"},
	}, libraries()...)
}

// libraries are the lock libraries.
func libraries() []Row {
	return []Row{
		library("go-holdfast", "holdfast", holdfast(3), "Holdfast's"),
		library("go-etcd", "etcd", etcd, "`concurrency.Mutex`, three members of etcd"),
		library("go-rueidislock", "redis-always", redisAlways, "client-side caching, one redis-server"),
		library("go-redsync", "redis-always", redisAlways, "polls every 50 to 250 ms, one redis-server"),
		library("python-holdfast", "holdfast", holdfast(3), "Holdfast's, in threads"),
		library("python-asyncio", "holdfast", holdfast(3), "Holdfast's, in tasks"),
		library("python-kazoo", "zookeeper", zookeeper, "`Lock`, three servers of ZooKeeper"),
		library("python-redis-py", "redis-always", redisAlways, "`Lock`, polls every 100 ms, one redis-server"),
		library("java-holdfast", "holdfast", holdfast(3), "Holdfast's"),
		library("java-redisson", "redis-always", redisAlways, "`RFairLock`, one redis-server"),
		library("java-curator", "zookeeper", zookeeper, "`InterProcessMutex`, three servers of ZooKeeper"),
		library("typescript-holdfast", "holdfast", holdfast(3), "Holdfast's"),
		library("typescript-redlock", "redis-always", redisAlways, "polls every 100 to 300 ms, one redis-server"),
	}
}

// library is a lock library, whose name begins with its language and a hyphen.
func library(name, cluster string, servers func(context.Context, *builder) error, about string) Row {
	language, _, _ := strings.Cut(name, "-")
	return Row{Name: name, Cluster: cluster, Via: target.ViaSpread, Language: language, servers: servers, About: about}
}

// Names are the rows' names.
func Names() []string {
	var names []string
	for _, r := range Rows() {
		names = append(names, r.Name)
	}
	return names
}

// Options are the folders and binaries of peers.
type Options struct {
	// Dir is where the folder of the peers is created, which [Peers.Stop] removes.
	Dir string
	// Holdfast is the binary to use, "" to build one.
	Holdfast string
	// Before is the binary of holdfast-before.
	Before string
	// Apart is set if [Cluster.Part] is to set a distance between the servers of a peer.
	Apart bool
}

// Subject is a running peer.
type Subject struct {
	Target  target.Target
	Cluster *Cluster
	// Failover is [Row.Failover].
	Failover bool
}

// Peers are all running peers.
type Peers struct {
	Subjects []Subject
	// Skipped has the reason of each peer that could not be started.
	Skipped  []error
	dir      string
	clusters map[string]*Cluster
}

// startLimit bounds the time until all servers of a peer are ready.
const startLimit = 30 * time.Second

// Start starts the named peers. A peer that does not start is skipped and listed in [Peers.Skipped]: a table without
// etcd is better than none.
func Start(ctx context.Context, names []string, o Options) (*Peers, error) {
	dir, err := os.MkdirTemp(o.Dir, "peers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for peers: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	p := &Peers{dir: dir, clusters: make(map[string]*Cluster)}
	b := &builder{dir: dir, holdfast: o.Holdfast, before: o.Before, far: o.Apart}
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, errors.Join(fmt.Errorf("there is no peer %q, but %s", name, strings.Join(Names(), ", ")), p.Stop())
		}
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(context.Cause(ctx), p.Stop())
		}
		if err := p.add(ctx, name, b); err != nil {
			p.Skipped = append(p.Skipped, fmt.Errorf("%s cannot be started: %w", name, err))
		}
	}
	return p, nil
}

func (p *Peers) add(ctx context.Context, name string, b *builder) error {
	row := Rows()[slices.Index(Names(), name)]
	if row.Cluster == "" {
		row.Cluster = row.Name
	}
	c := p.clusters[row.Cluster]
	if c == nil {
		var err error
		if c, err = p.start(ctx, row, b); err != nil {
			return err
		}
	}
	driver := c.driver
	if row.Language != "" {
		var err error
		if driver, err = b.library(ctx, row.Language); err != nil {
			return err
		}
	}
	addrs := c.addrs()
	if row.Primary {
		addrs = addrs[:1]
	}
	t := target.Target{
		Name: name, About: row.About, Addrs: addrs, Via: row.Via, Kind: row.Kind, Form: row.Form,
		Users: row.Users, Wait: row.Wait, PIDs: c.pids, Driver: driver, Dir: c.dir, Own: true,
	}
	p.Subjects = append(p.Subjects, Subject{Target: t, Cluster: c, Failover: row.Failover})
	return nil
}

// start starts all servers of a row, or none.
func (p *Peers) start(ctx context.Context, row Row, b *builder) (*Cluster, error) {
	c := &Cluster{dir: filepath.Join(p.dir, row.Cluster), independent: row.Via == target.ViaRedlock}
	b.cluster = c
	if err := row.servers(ctx, b); err != nil {
		c.stop()
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.Ready(ready); err != nil {
		c.stop()
		return nil, errors.Join(err, errors.New(c.logTails()))
	}
	p.clusters[row.Cluster] = c
	return c, nil
}

// Stop kills all servers and removes their data.
func (p *Peers) Stop() error {
	for _, c := range p.clusters {
		c.stop()
	}
	return os.RemoveAll(p.dir)
}

// builder creates the servers of one cluster after another.
type builder struct {
	dir      string
	holdfast string
	before   string
	cores    string // for the servers; "": all
	far      bool   // servers can be set apart
	cluster  *Cluster
}

// apart returns the addresses at which servers that listen at addrs must reach each other.
func (b *builder) apart(addrs []string) ([]string, error) {
	if !b.far {
		return addrs, nil
	}
	b.cluster.distance = &distance{}
	seen := make([]string, len(addrs))
	for i, addr := range addrs {
		var err error
		if seen[i], err = b.cluster.distance.behind(addr); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// binary returns Holdfast's binary, which is built once.
func (b *builder) binary(ctx context.Context) (string, error) {
	if b.holdfast != "" {
		return filepath.Abs(b.holdfast)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, "bin-holdfast")
	if err := fleet.Build(ctx, root, out, "./cmd/holdfast"); err != nil {
		return "", err
	}
	b.holdfast = out
	return out, nil
}

// driver builds the module under bench/ with a peer's client and, mostly, its server. The build is kept in the user's
// cache.
func (b *builder) driver(ctx context.Context, name string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for what is built: %w", err)
	}
	out, source := filepath.Join(cache, "holdfast-bench", name), filepath.Join(root, "bench", name)
	// The build gets a copy of the module file, which it may update: the file is outdated when the main module's
	// dependencies have changed.
	modfile := out + ".mod"
	if err := errors.Join(copyFile(filepath.Join(source, "go.mod"), modfile), copyFile(filepath.Join(source, "go.sum"),
		out+".sum")); err != nil {
		return "", err
	}
	if err := fleet.Build(ctx, source, out, ".", "-mod=mod", "-modfile="+modfile); err != nil {
		return "", fmt.Errorf("its Go modules are needed once, from a module proxy: %w", err)
	}
	return out, nil
}

// library installs the driver of a language's lock libraries in the user's cache.
func (b *builder) library(ctx context.Context, language string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for what is installed: %w", err)
	}
	out := filepath.Join(cache, "holdfast-bench", language)
	prepare := filepath.Join(root, "bench", "libraries", "prepare")
	said, err := exec.CommandContext(ctx, prepare, language, out).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("install the libraries of %s: %w: %s", language, err, said)
	}
	return filepath.Join(out, "run"), nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

func moduleRoot(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}
