package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
)

const (
	demoStartLimit = 30 * time.Second
	demoPoll       = 20 * time.Millisecond
)

// waitServing returns once every node answers a linearizable read.
func (d *cluster) waitServing(ctx context.Context) error {
	for _, p := range d.nodes {
		if err := p.waitServing(ctx); err != nil {
			return err
		}
	}
	leader, err := d.awaitLeader(ctx)
	if err != nil {
		return fmt.Errorf("ask who leads: %w", err)
	}
	d.leader = leader
	return nil
}

// awaitLeader asks the running nodes until one of them answers a linearizable read and names a running leader. It gives
// up if no majority runs.
func (d *cluster) awaitLeader(ctx context.Context) (*process, error) {
	for {
		if len(d.living()) <= len(d.nodes)/2 {
			return nil, errMinority
		}
		for _, p := range d.living() {
			if leader := d.leaderAsSeenBy(ctx, p); leader != nil {
				return leader, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(demoPoll):
		}
	}
}

var errMinority = errors.New("a majority is needed")

func (d *cluster) leaderAsSeenBy(ctx context.Context, p *process) *process {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if v, err := p.ask(ctx, "EXISTS", "holdfast:demo"); err != nil || v.IsError() {
		return nil
	}
	info, err := p.ask(ctx, "INFO", "holdfast")
	if err != nil {
		return nil
	}
	name := infoField(info.Str, "leader_name")
	for _, leader := range d.living() {
		if leader.Name == name {
			return leader
		}
	}
	return nil
}

func (d *cluster) living() []*process {
	var living []*process
	for _, p := range d.nodes {
		if p.Running() {
			living = append(living, p)
		}
	}
	return living
}

// waitServing waits until the node answers a linearizable read or has ended, or ctx ends.
func (p *process) waitServing(ctx context.Context) error {
	return fleet.Await(ctx, func(ctx context.Context) error {
		v, err := p.ask(ctx, "EXISTS", "holdfast:demo")
		if err == nil && v.IsError() {
			err = errors.New(v.Str)
		}
		if err != nil {
			return fmt.Errorf("%s does not serve: %w", p.Name, err)
		}
		return nil
	}, &p.Process)
}

// ask sends one command on a connection of its own.
func (p *process) ask(ctx context.Context, words ...string) (protocol.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return protocol.Value{}, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return protocol.Value{}, err
	}
	requests := [][]string{words}
	if p.password != "" {
		requests = [][]string{{"AUTH", p.password}, words}
	}
	client := protocol.NewConn(conn)
	for i, request := range requests {
		reply, err := client.Do(request...)
		if err != nil || i == len(requests)-1 || reply.IsError() {
			return reply, err
		}
	}
	return protocol.Value{}, nil
}

// infoField returns the value of "name:value" in INFO's reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), name+":"); ok {
			return value
		}
	}
	return ""
}
