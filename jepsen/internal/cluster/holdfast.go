package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
)

// agreeLimit bounds the time until replicas catch up, when no fault is active and every node serves.
const agreeLimit = 15 * time.Second

// Holdfast is a cluster of holdfast serve.
type Holdfast struct {
	c      Config
	places []string
	fleet  *Fleet

	users []string // the flags with the files of users and quotas

	mu    sync.Mutex
	nodes map[string]*place
}

// place is the configuration of the node at a place.
type place struct {
	in     bool
	peer   string // the purpose of the address for other nodes: "peer" or "peer2"
	joined bool   // the node joined an existing cluster
	vote   bool
	runs   Release
	twin   string // the place of the member whose second process this node is; "" for a node of its own
	// restored is set if the node is a separate cluster, made from a backup or from a copied folder.
	restored bool
	over     func() // ends the excuse of a removed node; nil without one
}

// NewHoldfast prepares a cluster; Start starts its processes.
func NewHoldfast(c Config) *Holdfast {
	h := &Holdfast{c: c, places: network.Nodes(c.Nodes + c.Spares), fleet: newFleet(c.Dir), nodes: map[string]*place{}}
	for i, m := range h.places {
		h.nodes[m] = &place{in: i < c.Nodes, peer: "peer", vote: true}
		if c.Before != "" {
			h.nodes[m].runs = Before
		}
		h.fleet.SetOut(m, i >= c.Nodes)
		h.fleet.add(m, m, func(under ...string) *exec.Cmd {
			words := slices.Concat(c.limits(), under, []string{h.program(m)}, h.args(m))
			cmd := c.Net.Command(m, words[0], words[1:]...)
			if c.Limits != (Limits{}) {
				cmd.Env = append(os.Environ(), c.Limits.environment()...)
			}
			return cmd
		})
	}
	return h
}

// program is the path of the program of the node at a place.
func (h *Holdfast) program(m string) string {
	if h.node(m).runs == Before {
		return h.c.Before
	}
	return h.c.Binary
}

// Run implements [Releases].
func (h *Holdfast) Run(m string, r Release) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[m].runs = r
}

// args returns the command line of the node at a place.
func (h *Holdfast) args(m string) []string {
	c, p := &h.c, h.node(m)
	addr, name := c.Net.Listen(m, p.peer), cmp.Or(p.twin, m)
	args := []string{
		"serve", "--name", name, "--addr", c.Net.Listen(m, "client"), "--peer-addr", addr,
		"--data-dir", c.DataDir(m), "--insecure", "--debug", "--disk-stall-limit", "2s",
	}
	if p.runs != Before { // the previous release lacks the flag, and takes the address from initial-cluster
		args = append(args, "--peer-advertise-addr", addr, "--consistency-check-interval", "10s")
	}
	switch {
	case p.restored: // the folder contains the configuration
	case p.joined:
		args = append(args, "--join", strings.Join(h.contacts(name), ","))
		if !p.vote {
			args = append(args, "--non-voter")
		}
	default:
		var initial []string
		for _, other := range h.places[:c.Nodes] {
			at := c.Net.Listen(other, "peer")
			switch { // a twin and its member swap their addresses; each must be listed once
			case other == p.twin:
				at = addr
			case other == m && p.twin != "":
				at = c.Net.Listen(p.twin, "peer")
			}
			initial = append(initial, other+"="+at)
		}
		args = append(args, "--initial-cluster", strings.Join(initial, ","))
	}
	if p.runs == Held {
		args = append(args, "--hold-version", strconv.Itoa(protocol.OldestEntryVersion))
	}
	if table := h.dialTable(m); table != "" {
		args = append(args, "--debug-peer-dial", table)
	}
	if c.Password != "" {
		args = append(args, "--password", c.Password)
	}
	return slices.Concat(args, h.users, c.Args)
}

// limits returns the shell words that limit a node's address space and descriptors.
func (c *Config) limits() []string {
	if c.Limits == (Limits{}) {
		return nil
	}
	return []string{"sh", "-c", fmt.Sprintf(`ulimit -v %d && ulimit -n %d && exec "$@"`, c.Limits.AddressSpace>>10,
		MaxFiles), "sh"}
}

// dialTable maps the other nodes to the addresses at which a node reaches them, if those differ from their own.
func (h *Holdfast) dialTable(m string) string {
	var table []string
	for _, other := range h.places {
		for _, purpose := range []string{"peer", "peer2"} {
			listen, reach := h.c.Net.Listen(other, purpose), h.c.Net.Reach(m, other, purpose)
			if listen != reach {
				table = append(table, listen+"="+reach)
			}
		}
	}
	return strings.Join(table, ",")
}

// Nodes implements [workload.Service].
func (h *Holdfast) Nodes() []string { return h.Members() }

// Sides implements [workload.Service].
func (h *Holdfast) Sides() int { return h.c.Nodes }

// Fleet implements [Target].
func (h *Holdfast) Fleet() Processes { return h.fleet }

// Close implements [Target].
func (h *Holdfast) Close() error { return h.fleet.close() }

// Dial implements [workload.Service].
func (h *Holdfast) Dial(ctx context.Context, n int, node string) (net.Conn, error) {
	return dialNode(ctx, &h.c, h.places[:h.c.Nodes], n, node)
}

// Start implements [Target].
func (h *Holdfast) Start(ctx context.Context) error {
	if h.c.Before == "" { // the previous release lacks the flags
		acl, quota, err := workload.WriteUsers(h.c.Dir, h.c.Password == "")
		if err != nil {
			return err
		}
		h.users = []string{"--acl-file", acl, "--quota-file", quota}
	}
	for _, m := range h.Members() {
		if err := h.fleet.Start(m); err != nil {
			return err
		}
	}
	return h.Serving(ctx)
}

// Serving implements [Target].
func (h *Holdfast) Serving(ctx context.Context) error { return serving(ctx, h) }

// Debug implements [Target].
func (h *Holdfast) Debug(ctx context.Context, member string, words ...string) (protocol.Value, error) {
	return askAs(ctx, h.c.Net, h.c.Password, "", member, "client", words...)
}

// Features implements [Target]. The features come from the command table, since a node may be too busy to answer, which
// would change the run of a seed.
func (h *Holdfast) Features(context.Context) workload.Features {
	_, hashes := protocol.Lookup("hincrby")
	_, ifEq := protocol.Lookup("delex")
	_, native := protocol.Lookup("lock.acquire")
	return workload.Features{Hashes: hashes, IfEq: ifEq, Budget: true, Native: native, Users: h.c.Before == ""}
}

// Supports implements [Target].
func (h *Holdfast) Supports(context.Context) []string {
	faults := []string{
		"partition-one", "partition-leader", "partition-halves", "partition-ring", "partition-oneway", "partition-deaf",
		"packets-reset", "kill-leader", "kill-follower", "kill-minority", "kill-all", "kill-loop", "restart-all",
		"restart-rolling",
		"pause-leader", "pause-minority", "pause-all", "pause-strobe", "pause-minute", "clock-jump", "clock-strobe",
		"clock-leader", "clock-rate",
		"disk-slow", "disk-hang", "disk-error", "disk-full", "disk-torn", "store-torn", "store-flipped", "transfer",
		"snapshot", "snapshot-tail", "state-wrong", "state-frozen",
	}
	if _, native := protocol.Lookup("session.open"); native {
		faults = append(faults, "holder-frozen", "holder-vanished", "holder-many")
	}
	if h.c.Limits != (Limits{}) {
		faults = append(faults, "hostile-scripts", "hostile-reads", "hostile-replies", "hostile-large", "hostile-entries",
			"hostile-unread", "hostile-drip", "hostile-churn", "hostile-silent", "hostile-stranger", "hostile-handshakes")
	}
	if _, changes := protocol.Lookup("raft.remove"); changes && h.c.Spares > 0 {
		faults = append(faults, "member-join", "member-replace", "member-swap", "member-lost", "member-force",
			"member-demote", "member-demote-leader", "member-move",
			"member-lead", "member-away", "member-back", "member-copied", "member-wiped", "member-split", "member-snapshot",
			"member-absent", "state-last")
	}
	if h.c.Spares > 0 {
		faults = append(faults, "backup-twice", "state-recovered")
	}
	if h.c.Before != "" {
		faults = append(faults, "release-stop", "release-kill")
	}
	if h.c.Nodes > 3 {
		faults = append(faults, "partition-bridge")
	}
	if h.c.Net.Kind() == "kernel" {
		return append(faults, "packets-lost", "packets-large", "refuse-leader", "refuse-all")
	}
	return append(faults, "packets-slow")
}

// Leader implements [Target]: it returns the node with the highest term of those that claim to lead.
func (h *Holdfast) Leader(ctx context.Context) (string, bool) {
	members := h.Members()
	terms := make([]int64, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if !h.fleet.Running(m) {
			continue
		}
		wg.Go(func() {
			role, err := h.Debug(ctx, m, "ROLE")
			if err != nil || len(role.Elems) == 0 || role.Elems[0].Str != "master" {
				return
			}
			terms[i] = 1
			if info, err := h.Debug(ctx, m, "INFO", "holdfast"); err == nil {
				terms[i] += InfoInt(info.Str, "raft_term")
			}
		})
	}
	wg.Wait()
	best := slices.Index(terms, slices.Max(terms))
	return members[best], terms[best] > 0
}

// InfoInt returns a number in the reply of INFO, or 0 without the field.
func InfoInt(info, field string) int64 {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

// digest is a hash of a member's state.
type digest struct {
	index int64
	hash  string
}

// Agree implements [Target]: it waits until all members report the same index, and compares their states there. A
// member that never reaches it is a finding.
func (h *Holdfast) Agree(ctx context.Context) (int, []string) {
	ctx, cancel := context.WithTimeout(ctx, agreeLimit)
	defer cancel()
	for {
		members := h.Members()
		digests, err := h.digests(ctx, members)
		if err == nil && sameIndex(digests) {
			var findings []string
			for i, d := range digests {
				if d.hash != digests[0].hash {
					findings = append(findings, fmt.Sprintf("at index %d the state of %s is %s, the state of %s %s",
						d.index, members[0], digests[0].hash, members[i], d.hash))
				}
			}
			return len(digests), findings
		}
		select {
		case <-ctx.Done():
			return 0, []string{fmt.Sprintf("the members did not come to the same index within %s: %v %v", agreeLimit, digests,
				err)}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func sameIndex(digests []digest) bool {
	for _, d := range digests {
		if d.index != digests[0].index {
			return false
		}
	}
	return len(digests) > 0
}

// digests asks all members concurrently, so that an idle cluster's stamps rarely fall in between.
func (h *Holdfast) digests(ctx context.Context, members []string) ([]digest, error) {
	digests := make([]digest, len(members))
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			v, err := h.Debug(ctx, m, "DEBUG", "DIGEST")
			if err == nil && len(v.Elems) != 2 {
				err = fmt.Errorf("digest of %s: unexpected reply", m)
			}
			if err != nil {
				errs[i] = err
				return
			}
			digests[i] = digest{v.Elems[0].Num, v.Elems[1].Str}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return digests, nil
}
