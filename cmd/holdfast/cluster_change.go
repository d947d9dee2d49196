package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server/api"
)

// changing is a subcommand that changes the members by a word with so many members.
func changing(word string, least, most int, which string) func(*clusterOwn, context.Context, []string,
	io.Writer) error {
	return func(o *clusterOwn, ctx context.Context, names []string, stdout io.Writer) error {
		switch {
		case len(names) < least:
			return usageError{errors.New("say " + which)}
		case len(names) > most:
			return unexpected(names[most])
		}
		servers, err := o.servers()
		if err != nil {
			return err
		}
		servers.Name = clientName("holdfast-cluster")
		c := &change{clusterOwn: o, servers: servers, word: word, names: names}
		return c.make(ctx, stdout)
	}
}

// remove takes members out, one after the other.
func (o *clusterOwn) remove(ctx context.Context, names []string, stdout io.Writer) error {
	one := changing("RAFT.REMOVE", 1, 1, "which member")
	for i := range max(1, len(names)) {
		if err := one(o, ctx, names[i:min(i+1, len(names))], stdout); err != nil {
			return err
		}
	}
	return nil
}

const (
	// againAfter is the pause before a change is asked for again.
	againAfter = 200 * time.Millisecond
	// leaderPatience is how long nodes may know no leader before a change that was not asked for yet is given up.
	leaderPatience = 5 * time.Second
)

// change is a change of the members under way.
type change struct {
	*clusterOwn
	servers *operator.Servers
	word    string
	names   []string
	// known: a node has answered. From then on the members are called by their IDs, so that asking again means the same,
	// and servers are all members.
	known bool
	sent  bool      // the change may have been made
	led   time.Time // when a node last knew a leader, or the first one answered
	// leaderless is what the last node said that answered, if it knew no leader: that tells more than the others' silence.
	leaderless error
}

// make asks for a change until it surely is made or refused: a node may end in the middle, also because it is the one
// that is removed.
func (c *change) make(ctx context.Context, stdout io.Writer) error {
	var silent error
	for i := 0; ; i++ {
		err := c.attempt(ctx, c.servers.Addrs[i%len(c.servers.Addrs)], stdout)
		if err == nil || errors.As(err, new(*operator.Refusal)) {
			return err
		}
		if c.leaderless != nil {
			err = c.leaderless
		}
		if !c.known {
			silent = operator.Also(silent, err)
		}
		switch {
		case i+1 >= len(c.servers.Addrs) && !c.known:
			return silent // no node has answered yet: wrong addresses, most likely
		case c.leaderless != nil && !c.sent && time.Since(c.led) >= leaderPatience:
			return fmt.Errorf("%w; nothing was changed", err)
		}
		timer := time.NewTimer(againAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if !c.sent {
				return fmt.Errorf("%w; nothing was changed", err)
			}
			return fmt.Errorf("%w; ask again to find out, and to complete the change", err)
		}
	}
}

// attempt asks one node: first how things are, then for the change if there is a leader to make it.
func (c *change) attempt(ctx context.Context, addr string, stdout io.Writer) error {
	conn, err := c.servers.Dial(ctx, addr, min(c.timeout, nodePatience))
	if err != nil {
		return err
	}
	defer conn.Close()
	status, err := statusOf(ctx, conn)
	if err != nil {
		return err
	}
	if !c.known {
		c.known, c.led = true, time.Now()
		c.learn(status)
	}
	if status.Leader == "" {
		c.leaderless = errors.New(printableText(strings.TrimSuffix(status.Sentence, ".")))
		return c.leaderless
	}
	c.led, c.leaderless = time.Now(), nil
	if c.gone && !isMember(status, c.names[0]) {
		_, err := fmt.Fprintf(stdout, "%s is no member\n", printable(c.names[0]))
		return err
	}
	if c.word == "RAFT.REPLACE" && len(c.names) == 1 {
		by, err := successor(status, c.names[0])
		if err != nil {
			return err
		}
		c.names = append(c.names, by)
	}
	return c.ask(ctx, conn, stdout)
}

// ask asks for the change, and prints what was done.
func (c *change) ask(ctx context.Context, conn *operator.Conn, stdout io.Writer) error {
	words := append([]string{c.word}, c.names...)
	if c.force {
		words = append(words, "FORCE")
	}
	conn.Allow(c.timeout)
	before := c.sent
	c.sent = true
	v, err := conn.Do(ctx, words...)
	if err != nil {
		c.sent = before || !strings.HasPrefix(v.Str, "CLUSTERDOWN")
		return err
	}
	var said strings.Builder
	for _, line := range v.Elems {
		said.WriteString(printable(line.Str) + "\n")
	}
	_, err = io.WriteString(stdout, said.String())
	return err
}

// learn takes the members that a node knows: where they can be asked, and IDs in the place of names.
func (c *change) learn(status *api.Cluster) {
	for j := range status.Members {
		m := &status.Members[j]
		for i, name := range c.names {
			if m.Name == name {
				c.names[i] = m.ID
			}
		}
		if addr := m.ClientAddress; addr != "" && !slices.Contains(c.servers.Addrs, addr) {
			c.servers.Addrs = append(c.servers.Addrs, addr)
		}
	}
}

// isMember reports whether a member has the name or the ID.
func isMember(status *api.Cluster, who string) bool {
	return slices.ContainsFunc(status.Members, func(m api.Member) bool { return m.Name == who || m.ID == who })
}

// successor is the ID of the one member that can take the place of another: it has no vote, and answers. If the member
// that goes is not there, the leader says so.
func successor(status *api.Cluster, old string) (id string, err error) {
	var names []string
	goes := old
	for i := range status.Members {
		switch m := &status.Members[i]; {
		case m.ID == old:
			goes = printable(m.Name)
		case !m.Voter && m.Answers:
			id, names = m.ID, append(names, printable(m.Name))
		}
	}
	switch len(names) {
	case 0:
		return "",
			&operator.Refusal{Text: fmt.Sprintf("no member without a vote answers that could replace %s: start one with --join "+
				"and --non-voter, or remove %s if the new one votes already", goes, goes)}
	case 1:
		return id, nil
	}
	return "", &operator.Refusal{Text: fmt.Sprintf("say which member is to replace %s: %s have no vote", goes,
		strings.Join(names, ", "))}
}
