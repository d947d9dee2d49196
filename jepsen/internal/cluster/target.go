// Package cluster runs what is tested: real processes, and what can be done to them.
//
// There are two targets: Holdfast, and Redis with Sentinel (one primary, two replicas, three sentinels). Each is a
// [Target]: members that can be killed, frozen and started again, and nodes that clients connect to.
//
// It promises: no process outlives the program; a process that ends by
// itself, without a fault that excuses the end, is reported ([Target.Findings]) and fails the run.
//
// Start reading at [Target], then fleet.go.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// Target is a service under test.
type Target interface {
	workload.Service
	// Members are the places that faults hit.
	Members() []string
	// Start starts everything and waits until every node serves.
	Start(ctx context.Context) error
	// Serving waits until every node serves again; the error says which does not.
	Serving(ctx context.Context) error
	// Features are asked of the running service.
	Features(ctx context.Context) workload.Features
	// Supports are the names of the faults that can be made.
	Supports(ctx context.Context) []string
	// Leader is the leader now, as far as can be seen.
	Leader(ctx context.Context) (member string, known bool)
	// Debug sends a command to a member, on a connection that no fault of the net cuts.
	Debug(ctx context.Context, member string, words ...string) (protocol.Value, error)
	// Agree compares the state of all members, when nothing is broken; looked is the number compared.
	Agree(ctx context.Context) (looked int, findings []string)
	// Fleet is what can be done to the processes.
	Fleet() Processes
	// Close ends everything.
	Close() error
}

// Processes are the processes of a target, by member: a member is frozen, killed and started as one.
type Processes interface {
	// Start starts what of a member is not running.
	Start(member string) error
	// Kill ends a member as kill -9 does, Stop tells it to end in good order.
	Kill(member string) error
	Stop(member string) error
	// Pause freezes a member, Resume lets a member go on.
	Pause(member string) error
	Resume(member string) error
	// Running reports whether all of a member runs.
	Running(member string) bool
	// Excuse makes the end of a member's processes no finding, until the returned function is called.
	Excuse(member string) (over func())
	// Findings are what went wrong with processes.
	Findings() []string
}

// Tracers are processes that have PIDs and can be run by another program.
type Tracers interface {
	Processes
	// StartUnder starts what of a member is not running, under another program that keeps the PID.
	StartUnder(member string, under ...string) error
	// PIDs are the process numbers of what runs of a member.
	PIDs(member string) []int
}

// Config is what all targets need.
type Config struct {
	Net network.Network
	// Dir is where data and logs go.
	Dir   string
	Nodes int
	// Spares is the number of places at which no node runs at first.
	Spares int
	// DataDir is a member's data folder.
	DataDir func(member string) string
	// Binary is the program of the server. With Before, the program of the release before, nodes begin with that.
	Binary, Before string
	// Args are passed on to the program.
	Args []string
	// Password, if not empty, is what clients must give.
	Password string
	// Limits, if not zero, are the limits of each node, which then also has [MaxFiles] descriptors only.
	Limits Limits
}

// debugTimeout bounds a command of the harness to a member that may be frozen.
const debugTimeout = time.Second

// ask sends one command on a connection of its own.
func ask(ctx context.Context, n network.Network, from, member, purpose string, words ...string) (protocol.Value,
	error,
) {
	return askAs(ctx, n, "", from, member, purpose, words...)
}

// askAs does the same with a password.
func askAs(ctx context.Context, n network.Network, password, from, member, purpose string,
	words ...string,
) (protocol.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	nc, err := n.Dial(ctx, from, member, purpose)
	if err != nil {
		return protocol.Value{}, fmt.Errorf("dial %s: %w", member, err)
	}
	defer nc.Close()
	if err := authenticate(nc, password); err != nil {
		return protocol.Value{}, fmt.Errorf("%s: %w", member, err)
	}
	r := wire.New(nc, debugTimeout).Do(words...)
	if r.Outcome != history.OK {
		return protocol.Value{}, fmt.Errorf("ask %s for %s: %s", member, words[0], r.Why)
	}
	return r.Value, nil
}

// serving waits until a write through every node succeeds.
func serving(ctx context.Context, t workload.Service) error {
	for _, node := range t.Nodes() {
		if err := fleet.Await(ctx, func(ctx context.Context) error { return probe(ctx, t, node) }); err != nil {
			return fmt.Errorf("%s does not serve: %w", node, err)
		}
	}
	return nil
}

func probe(ctx context.Context, t workload.Service, node string) error {
	dial, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	nc, err := t.Dial(dial, 0, node)
	if err != nil {
		return err
	}
	defer nc.Close()
	if r := wire.New(nc, 2*debugTimeout).Do("SET", "jepsen-probe", node); r.Outcome != history.OK {
		return errors.New(r.Why)
	}
	return nil
}

// knows reports whether the node has a command.
func knows(ctx context.Context, t Target, command string) bool {
	v, err := t.Debug(ctx, t.Members()[0], "COMMAND", "INFO", command)
	return err == nil && len(v.Elems) == 1 && len(v.Elems[0].Elems) > 0
}

// side is the place of the clients of a side.
func side(members []string, n int) string { return network.ClientsOf(members[n%len(members)]) }

// dialNode connects the clients of a side to a node.
func dialNode(ctx context.Context, c *Config, members []string, n int, node string) (net.Conn, error) {
	nc, err := c.Net.Dial(ctx, side(members, n), node, "client")
	if err != nil {
		return nil, err
	}
	if err := authenticate(nc, c.Password); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// authenticate gives a password, unless there is none.
func authenticate(nc net.Conn, password string) error {
	if password == "" {
		return nil
	}
	if r := wire.New(nc, debugTimeout).Do("AUTH", password); r.Outcome != history.OK {
		return errors.New("authenticate: " + r.Why)
	}
	return nc.SetDeadline(time.Time{})
}
