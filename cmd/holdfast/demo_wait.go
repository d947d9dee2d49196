package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// waitServing returns the leader's name once every node answers a linearizable read.
func (d *cluster) waitServing(ctx context.Context) (leader string, err error) {
	for _, p := range d.nodes {
		if err := p.waitServing(ctx); err != nil {
			return "", err
		}
	}
	info, err := ask(ctx, d.nodes[0].addr, "INFO", "holdfast")
	if err != nil {
		return "", fmt.Errorf("ask who leads: %w", err)
	}
	return infoField(info.Str, "leader_name"), nil
}

// waitServing asks until the node answers, dies, or ctx ends.
func (p *process) waitServing(ctx context.Context) error {
	var last error
	for {
		v, err := ask(ctx, p.addr, "EXISTS", "holdfast:demo")
		switch {
		case err != nil:
			last = err
		case v.IsError():
			last = errors.New(v.Str)
		default:
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s did not start: %w", p.name, p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve after %v: %w", p.name, demoStartLimit, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask sends one command on a connection of its own.
func ask(ctx context.Context, addr string, words ...string) (protocol.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return protocol.Value{}, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return protocol.Value{}, err
	}
	request := protocol.Strings(words...).AppendTo(nil, protocol.RESP2)
	if _, err := conn.Write(request); err != nil {
		return protocol.Value{}, err
	}
	return protocol.ReadValue(bufio.NewReader(conn))
}

// infoField finds the value of "name:value" in INFO's reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), name+":"); ok {
			return value
		}
	}
	return ""
}
