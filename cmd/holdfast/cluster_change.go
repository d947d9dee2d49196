package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/protocol"
)

// changing is a subcommand that changes the members by a word with so many members.
func changing(word string, least, most int, which string) func(*clusterOwn, context.Context, []string, io.Writer) error {
	return func(o *clusterOwn, ctx context.Context, names []string, stdout io.Writer) error {
		switch {
		case len(names) < least:
			return usageError{errors.New("say " + which)}
		case len(names) > most:
			return unexpected(names[most])
		}
		return o.change(ctx, word, names, stdout)
	}
}

// againAfter is the pause before a change is asked for again.
const againAfter = 200 * time.Millisecond

// change asks for a change until it surely is made or refused: a node may end in the middle, also because it is the one
// that is removed. From the first answer on the members are called by their IDs, so that asking again means the same.
func (o *clusterOwn) change(ctx context.Context, word string, names []string, stdout io.Writer) error {
	servers, err := o.servers()
	if err != nil {
		return err
	}
	servers.Name = clientName()
	pinned := false
	for i := 0; ; i++ {
		err := o.attempt(ctx, servers, servers.Addrs[i%len(servers.Addrs)], word, names, &pinned, stdout)
		switch {
		case err == nil, errors.As(err, new(*holder.Refusal)):
			return err
		case i+1 >= len(servers.Addrs) && !pinned:
			return err // no node has answered yet: a wrong address, most likely
		}
		timer := time.NewTimer(againAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; ask again to find out, and to complete the change", err)
		}
	}
}

// attempt asks one node.
func (o *clusterOwn) attempt(ctx context.Context, servers *holder.Servers, addr, word string, names []string, pinned *bool, stdout io.Writer) error {
	conn, err := servers.Dial(ctx, addr, min(o.timeout, nodePatience))
	if err != nil {
		return err
	}
	defer conn.Close()
	if !*pinned {
		v, err := conn.Do(ctx, "RAFT.MEMBERS")
		if err != nil {
			return err
		}
		pin(names, v)
		*pinned = true
	}
	words := append([]string{word}, names...)
	if o.force {
		words = append(words, "FORCE")
	}
	conn.Allow(o.timeout)
	v, err := conn.Do(ctx, words...)
	if err != nil {
		return err
	}
	var said strings.Builder
	for _, line := range v.Elems {
		said.WriteString(printable(line.Str) + "\n")
	}
	_, err = io.WriteString(stdout, said.String())
	return err
}

// pin puts IDs in the place of the names that members have.
func pin(names []string, all protocol.Value) {
	for i, name := range names {
		for _, row := range all.Elems {
			if m := fieldsOf(row); m.text("name") == name {
				names[i] = holder.Text(m["id"])
			}
		}
	}
}
