// Package cluster runs the systems under test as real processes.
//
// There are two targets: Holdfast, and Redis with Sentinel (one primary, two replicas, three sentinels). Each is a
// [Target]: members that can be killed, frozen and restarted, and nodes that clients connect to.
//
// It promises: no process outlives the program; a process that ends without a fault that excuses it is reported
// ([Processes.Findings]) and fails the run.
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
	// Members returns the places that faults hit.
	Members() []string
	// Start starts everything and waits until every node serves.
	Start(ctx context.Context) error
	// Serving waits until every node serves; the error names one that does not.
	Serving(ctx context.Context) error
	// Features returns the features of the running service.
	Features(ctx context.Context) workload.Features
	// Supports returns the names of the possible faults.
	Supports(ctx context.Context) []string
	// Leader returns the present leader, if it can be determined.
	Leader(ctx context.Context) (member string, known bool)
	// Debug sends a command to a member, on a connection that no network fault cuts.
	Debug(ctx context.Context, member string, words ...string) (protocol.Value, error)
	// Agree compares the states of all members, while no fault is active; looked is the number of compared states.
	Agree(ctx context.Context) (looked int, findings []string)
	// Fleet returns the processes.
	Fleet() Processes
	// Close ends all processes.
	Close() error
}

// Processes are the processes of a target. All processes of a member are frozen, killed and started together.
type Processes interface {
	// Start starts the processes of a member that do not run.
	Start(member string) error
	// Kill kills a member (kill -9), Stop stops it gracefully.
	Kill(member string) error
	Stop(member string) error
	// Pause freezes a member, Resume resumes it.
	Pause(member string) error
	Resume(member string) error
	// Running reports whether all processes of a member run.
	Running(member string) bool
	// Excuse tolerates the end of a member's processes until the returned function is called.
	Excuse(member string) (over func())
	// Findings returns what went wrong with processes.
	Findings() []string
}

// Tracers are processes with PIDs, which another program can run.
type Tracers interface {
	Processes
	// StartUnder starts the processes of a member that do not run, under another program that keeps the PID.
	StartUnder(member string, under ...string) error
	// PIDs returns the PIDs of a member's running processes.
	PIDs(member string) []int
}

// Config is the configuration of all targets.
type Config struct {
	Net network.Network
	// Dir is the folder of data and logs.
	Dir   string
	Nodes int
	// Spares is the number of places without a node at first.
	Spares int
	// DataDir returns a member's data folder.
	DataDir func(member string) string
	// Binary is the server's program. If Before, the previous release's program, is set, nodes begin with Before.
	Binary, Before string
	// Args are passed to the program.
	Args []string
	// Password is the clients' password, or empty.
	Password string
	// Limits, if not zero, limit each node, which then also has only [MaxFiles] descriptors.
	Limits Limits
}

// debugTimeout bounds a debug command to a member that may be frozen.
const debugTimeout = time.Second

// ask sends one command on its own connection.
func ask(ctx context.Context, n network.Network, from, member, purpose string, words ...string) (protocol.Value,
	error,
) {
	return askAs(ctx, n, "", from, member, purpose, words...)
}

// askAs does so with a password.
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

// knows reports whether a target has a command.
func knows(ctx context.Context, t Target, command string) bool {
	v, err := t.Debug(ctx, t.Members()[0], "COMMAND", "INFO", command)
	return err == nil && len(v.Elems) == 1 && len(v.Elems[0].Elems) > 0
}

// side returns the place of the clients of a side.
func side(members []string, n int) string { return network.ClientsOf(members[n%len(members)]) }

// dialNode connects to a node from a side.
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

// authenticate sends the password, if there is one.
func authenticate(nc net.Conn, password string) error {
	if password == "" {
		return nil
	}
	if r := wire.New(nc, debugTimeout).Do("AUTH", password); r.Outcome != history.OK {
		return errors.New("authenticate: " + r.Why)
	}
	return nc.SetDeadline(time.Time{})
}
