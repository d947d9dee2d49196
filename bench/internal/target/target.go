// Package target is what is measured: a name, addresses, and how to take and give
// back a lock there.
//
// It promises that every kind of client does the same work: the lock is taken by SET
// NX PX with a token and given back by the compare-and-delete script that lock
// libraries send, by hash. A client never sends a command a second time by itself:
// a retry would hide an error and spoil a latency.
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

// Via says which servers of a target the clients talk to.
type Via string

// The ways. A Redlock's clients talk to all at once.
const (
	ViaSpread    Via = "spread"
	ViaLeader    Via = "leader"
	ViaFollowers Via = "followers"
	ViaRedlock   Via = "redlock"
)

// Kind is the protocol that a target's servers speak.
type Kind string

// The kinds. Only RESP is spoken by this module; the clients of the others need modules that
// the benchmark does not depend on, and are programs of their own (see package drive).
const (
	RESP          Kind = ""
	Etcd          Kind = "etcd"           // a key is put if absent, deleted if it has a value
	EtcdMutex     Kind = "etcd-mutex"     // clientv3/concurrency's Mutex
	ZooKeeper     Kind = "zookeeper"      // an ephemeral node is created and deleted
	ZooKeeperLock Kind = "zookeeper-lock" // the lock recipe: a queue of sequential nodes
)

// Form is how clients of RESP servers take a lock.
type Form string

// The forms. Clients of the last two wait for a lock that is held; with the first a refused client polls.
const (
	Stock    Form = ""         // SET NX PX, and a compare-and-delete
	Native   Form = "native"   // LOCK.ACQUIRE with WAIT, LOCK.RELEASE
	Redisson Form = "redisson" // a hash and scripts, as Redisson's RLock; a waiter is told by a message
)

// Target is a thing that is measured.
type Target struct {
	Name  string   `json:"name"`
	About string   `json:"about,omitempty"`
	Addrs []string `json:"addrs"`
	Via   Via      `json:"via"`
	Kind  Kind     `json:"kind,omitempty"`
	Form  Form     `json:"form,omitempty"`
	// Users: the servers have the users of the workload flood.
	Users bool `json:"users,omitempty"`
	// Wait is the number of replicas that clients wait for after an acquire.
	Wait int `json:"wait,omitempty"`
	// PIDs are the servers' processes now; nil when not known.
	PIDs func() []int `json:"-"`
	// Driver is the program that runs workloads against the target; "" is this program.
	Driver string `json:"-"`
	// Dir is where the servers store everything; "" is not known.
	Dir string `json:"-"`
	// Own: the servers were started to be measured, and may be emptied.
	Own bool `json:"-"`
}

// Parse reads a target: name=host:port[+host:port…][@spread|@leader|@followers|@redlock][@native|@redisson][@wait=N].
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

// askTimeout limits a question about a server's role.
const askTimeout = 2 * time.Second

// Leader is the address of the server that calls itself master. Servers that do not
// answer are passed over.
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

// Endpoints are the addresses that the target's clients connect to in turn.
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

// dialsAtATime is how many connections are opened at a time.
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

// dialers are what [Register] was told.
var dialers = map[Kind]Dial{}

// Register says how clients of a kind are opened. Programs call Register at the start.
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

// CloseAll closes clients; nil is skipped.
func CloseAll(clients []Client) {
	for _, c := range clients {
		if c != nil {
			_ = c.Close()
		}
	}
}

// Probe is a client that asks one server for locks: it is what failovers are watched with.
type Probe struct {
	acquire func(ctx context.Context, key, token string) (bool, error)
	close   func()
}

// etcdProbeTimeout ends a question that waits for a leader which is gone: etcd lets the question wait for seven
// seconds, and answers at once a question that is asked again when the new leader is there.
const etcdProbeTimeout = 100 * time.Millisecond

// Probe opens a probe at addr. Probe may succeed at a server that is not there: then
// [Probe.Acquire] errs.
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

// Acquire takes a lock, or reports that another owner has it.
func (p *Probe) Acquire(ctx context.Context, key, token string) (bool, error) {
	return p.acquire(ctx, key, token)
}

// Close ends the probe.
func (p *Probe) Close() { p.close() }
