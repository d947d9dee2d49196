// Package target describes a measured system: its name, its addresses, and how to acquire and release a lock.
//
// It promises that every kind of client does the same work: it acquires a lock by SET NX PX with a token, and releases
// it by the compare-and-delete script of lock libraries, sent by hash. A client never retries by itself, which would
// hide an error and distort a latency.
//
// Start reading at [Client].
package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
)

// Via selects the servers of a target that clients connect to.
type Via string

// A Redlock's clients connect to all servers.
const (
	ViaSpread    Via = "spread"
	ViaLeader    Via = "leader"
	ViaFollowers Via = "followers"
	ViaRedlock   Via = "redlock"
)

// Kind is the protocol that a target's servers speak.
type Kind string

// This module speaks RESP only. The clients of the others need modules that it does not import, and are separate
// programs (see package drive).
const (
	RESP          Kind = ""
	Etcd          Kind = "etcd"           // put if absent, deleted if the value matches
	EtcdMutex     Kind = "etcd-mutex"     // clientv3/concurrency's Mutex
	ZooKeeper     Kind = "zookeeper"      // an ephemeral node is created and deleted
	ZooKeeperLock Kind = "zookeeper-lock" // the lock recipe: a queue of sequential nodes
)

// Form is how clients of RESP servers acquire a lock.
type Form string

// With Stock a refused client polls; with the others it waits.
const (
	Stock    Form = ""         // SET NX PX and a compare-and-delete
	Native   Form = "native"   // LOCK.ACQUIRE with WAIT, LOCK.RELEASE
	Redisson Form = "redisson" // a hash and scripts, like Redisson's RLock; a message wakes waiters
)

// Target is a measured system.
type Target struct {
	Name  string   `json:"name"`
	About string   `json:"about,omitempty"`
	Addrs []string `json:"addrs"`
	Via   Via      `json:"via"`
	Kind  Kind     `json:"kind,omitempty"`
	Form  Form     `json:"form,omitempty"`
	// Users is set if the servers have the users of the workload flood.
	Users bool `json:"users,omitempty"`
	// Wait is the number of replicas that clients wait for after an acquire.
	Wait int `json:"wait,omitempty"`
	// PIDs returns the present processes of the servers; nil if unknown.
	PIDs func() []int `json:"-"`
	// Driver is the program that runs the workloads; "" is this one.
	Driver string `json:"-"`
	// Dir is the folder of the servers' data; "" if unknown.
	Dir string `json:"-"`
	// Own is set if the servers were started for the measurement and may be emptied.
	Own bool `json:"-"`
}

// Parse parses a target: name=host:port[+host:port…][@spread|@leader|@followers|@redlock][@native|@redisson][@wait=N].
func Parse(spec string) (Target, error) {
	name, rest, ok := strings.Cut(spec, "=")
	if !ok || name == "" || rest == "" {
		return Target{},
			fmt.Errorf("target %q: want name=host:port[+host:port…][@leader|@followers|@spread|@redlock][@native|@redisson][@wait=N]", spec)
	}
	addrs, options, _ := strings.Cut(rest, "@")
	t := Target{Name: name, Addrs: strings.Split(addrs, "+"), Via: ViaSpread}
	for option := range strings.SplitSeq(options, "@") {
		switch via := Via(option); {
		case option == "":
		case slices.Contains([]Via{ViaSpread, ViaLeader, ViaFollowers, ViaRedlock}, via):
			t.Via = via
		case Form(option) == Native || Form(option) == Redisson:
			t.Form = Form(option)
		default:
			if _, err := fmt.Sscanf(option, "wait=%d", &t.Wait); err != nil {
				return Target{}, fmt.Errorf("target %q: unknown option %q", spec, option)
			}
		}
	}
	return t, nil
}

// askTimeout bounds a question about a server's role.
const askTimeout = 2 * time.Second

// Leader returns the address of the server that claims to be master. It skips servers that do not answer.
func (t Target) Leader(ctx context.Context) (string, error) {
	var errs error
	for _, addr := range t.Addrs {
		leads, err := t.leads(ctx, addr)
		if leads {
			return addr, nil
		}
		errs = errors.Join(errs, err)
	}
	return "", errors.Join(fmt.Errorf("%s has no leader", t.Name), errs)
}

func (t Target) leads(ctx context.Context, addr string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch t.Kind {
	case Etcd, EtcdMutex:
		status, err := EtcdStatus(ctx, addr)
		return err == nil && status.Leads(), err
	case ZooKeeper, ZooKeeperLock:
		mode, err := ZooKeeperMode(ctx, addr)
		return mode == "leader", err
	}
	v, err := resp.Ask(ctx, addr, askTimeout, "ROLE")
	return err == nil && len(v.Elems) > 0 && v.Elems[0].Str == "master", err
}

// Endpoints returns the addresses that the clients connect to in turn.
func (t Target) Endpoints(ctx context.Context) ([]string, error) {
	if t.Via != ViaLeader && t.Via != ViaFollowers {
		return t.Addrs, nil
	}
	leader, err := t.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if t.Via == ViaLeader {
		return []string{leader}, nil
	}
	followers := slices.DeleteFunc(slices.Clone(t.Addrs), func(a string) bool { return a == leader })
	if len(followers) == 0 {
		return nil, fmt.Errorf("%s has no followers", t.Name)
	}
	return followers, nil
}

// dialsAtATime is the number of connections opened concurrently.
const dialsAtATime = 32

// Clients opens n clients.
func (t Target) Clients(ctx context.Context, n int, o Options) ([]Client, error) {
	endpoints, err := t.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	dial, err := t.dialer()
	if err != nil {
		return nil, err
	}
	o.Wait = t.Wait
	clients, errs := make([]Client, n), make([]error, n)
	var group sync.WaitGroup
	tokens := make(chan struct{}, dialsAtATime)
	for i := range n {
		tokens <- struct{}{}
		group.Go(func() {
			defer func() { <-tokens }()
			if t.Via == ViaRedlock {
				clients[i], errs[i] = dialRedlock(ctx, endpoints, o)
			} else {
				clients[i], errs[i] = dial(ctx, endpoints[i%len(endpoints)], o)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		CloseAll(clients)
		return nil, fmt.Errorf("open %d clients of %s: %w", n, t.Name, firstOf(errs))
	}
	return clients, nil
}

func firstOf(errs []error) error {
	return errs[slices.IndexFunc(errs, func(err error) bool { return err != nil })]
}

// Dial opens a client of the server at addr.
type Dial func(ctx context.Context, addr string, o Options) (Client, error)

// dialers are the registered kinds.
var dialers = map[Kind]Dial{}

// Register registers how to open clients of a kind. Programs call it at their start.
func Register(kind Kind, dial Dial) { dialers[kind] = dial }

func (t Target) dialer() (Dial, error) {
	switch {
	case t.Kind == RESP && t.Form == Native:
		return dialNative, nil
	case t.Kind == RESP && t.Form == Redisson:
		return dialRedisson, nil
	case t.Kind == RESP:
		return dialRaw, nil
	}
	if dial := dialers[t.Kind]; dial != nil {
		return dial, nil
	}
	return nil, fmt.Errorf("%s: this program has no client for %s", t.Name, t.Kind)
}

// CloseAll closes clients; it skips nil.
func CloseAll(clients []Client) {
	for _, c := range clients {
		if c != nil {
			_ = c.Close()
		}
	}
}

// Probe acquires locks from one server, to observe failovers.
type Probe struct {
	acquire func(ctx context.Context, key, token string) (bool, error)
	close   func()
}

// etcdProbeTimeout bounds a request that waits for a dead leader. etcd blocks it for seven seconds, but answers a
// repeated request at once when there is a new leader.
const etcdProbeTimeout = 100 * time.Millisecond

// Probe opens a probe at addr. It may succeed without a server there; then [Probe.Acquire] fails.
func (t Target) Probe(ctx context.Context, addr string, o Options) (*Probe, error) {
	if t.Kind == Etcd || t.Kind == EtcdMutex {
		transport := &http.Transport{}
		client := &http.Client{Transport: transport, Timeout: etcdProbeTimeout}
		return &Probe{
			acquire: func(ctx context.Context, key, token string) (bool, error) {
				return etcdAcquire(ctx, client, addr, key, token)
			},
			close: transport.CloseIdleConnections,
		}, nil
	}
	o.Wait = t.Wait
	c, err := dialRaw(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return &Probe{acquire: c.Acquire, close: func() { _ = c.Close() }}, nil
}

// Acquire acquires a lock, or reports that another owner has it.
func (p *Probe) Acquire(ctx context.Context, key, token string) (bool, error) {
	return p.acquire(ctx, key, token)
}

// Close ends the probe.
func (p *Probe) Close() { p.close() }
