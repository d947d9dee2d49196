package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/bench/internal/resp"
)

// Via says which of a target's servers its clients talk to.
type Via string

// The ways. A Redlock's clients talk to all at once.
const (
	ViaSpread    Via = "spread"
	ViaLeader    Via = "leader"
	ViaFollowers Via = "followers"
	ViaRedlock   Via = "redlock"
)

// Target is one thing that is measured.
type Target struct {
	Name  string   `json:"name"`
	Addrs []string `json:"addrs"`
	Via   Via      `json:"via"`
	// Wait is the number of replicas that clients wait for after an acquire.
	Wait int `json:"wait,omitempty"`
	// PIDs are the servers' processes now; nil when they are not known.
	PIDs func() []int `json:"-"`
}

// Parse reads a target: name=host:port[+host:port…][@spread|@leader|@followers|@redlock][@wait=N].
func Parse(spec string) (Target, error) {
	name, rest, ok := strings.Cut(spec, "=")
	if !ok || name == "" || rest == "" {
		return Target{}, fmt.Errorf("target %q: want name=host:port[+host:port…][@leader|@followers|@spread|@redlock][@wait=N]", spec)
	}
	addrs, options, _ := strings.Cut(rest, "@")
	t := Target{Name: name, Addrs: strings.Split(addrs, "+"), Via: ViaSpread}
	for option := range strings.SplitSeq(options, "@") {
		switch via := Via(option); {
		case option == "":
		case slices.Contains([]Via{ViaSpread, ViaLeader, ViaFollowers, ViaRedlock}, via):
			t.Via = via
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
		v, err := resp.Ask(ctx, addr, askTimeout, "ROLE")
		if err == nil && len(v.Elems) > 0 && v.Elems[0].Str == "master" {
			return addr, nil
		}
		errs = errors.Join(errs, err)
	}
	return "", errors.Join(fmt.Errorf("%s has no leader", t.Name), errs)
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

// dialers is how many connections are opened at a time.
const dialers = 32

// Clients opens n clients.
func (t Target) Clients(ctx context.Context, n int, o Options) ([]Client, error) {
	endpoints, err := t.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	o.Wait = t.Wait
	clients, errs := make([]Client, n), make([]error, n)
	var group sync.WaitGroup
	tokens := make(chan struct{}, dialers)
	for i := range n {
		tokens <- struct{}{}
		group.Go(func() {
			defer func() { <-tokens }()
			if t.Via == ViaRedlock {
				clients[i], errs[i] = dialRedlock(ctx, endpoints, o)
			} else {
				clients[i], errs[i] = dialOne(ctx, endpoints[i%len(endpoints)], o)
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

func dialOne(ctx context.Context, addr string, o Options) (Client, error) {
	if o.Library == Raw {
		return dialRaw(ctx, addr, o)
	}
	return dialGoRedis(ctx, addr, o)
}

// CloseAll closes clients; nil ones are skipped.
func CloseAll(clients []Client) {
	for _, c := range clients {
		if c != nil {
			_ = c.Close()
		}
	}
}
