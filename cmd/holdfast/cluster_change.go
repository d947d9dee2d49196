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

// changing returns a subcommand that changes members, with minCount to maxCount members as arguments.
func changing(word string, minCount, maxCount int, which string) func(*clusterOwn, context.Context, []string,
	io.Writer) error {
	return func(o *clusterOwn, ctx context.Context, names []string, stdout io.Writer) error {
		switch {
		case len(names) < minCount:
			return usageError{errors.New("say " + which)}
		case len(names) > maxCount:
			return unexpected(names[maxCount])
		}
		servers, err := o.servers()
		if err != nil {
			return err
		}
		c := &change{clusterOwn: o, servers: servers, word: word, names: names}
		return c.make(ctx, stdout)
	}
}

// remove removes members, one after another. If one of several names is no member's, it removes none, except with
// --gone-ok.
func (o *clusterOwn) remove(ctx context.Context, names []string, stdout io.Writer) error {
	const word = "RAFT.REMOVE"
	if len(names) < 2 {
		return changing(word, 1, 1, "which member")(o, ctx, names, stdout)
	}
	servers, err := o.servers()
	if err != nil {
		return err
	}
	status, err := o.look(ctx)
	if err != nil {
		return err
	}
	found := &change{servers: servers, names: slices.Clone(names)}
	found.learn(status)
	for i, id := range found.names {
		if !o.gone && !slices.ContainsFunc(status.Members, func(m api.Member) bool { return m.ID == id }) {
			return fmt.Errorf("no member is called %q; nothing was changed", names[i])
		}
	}
	for _, id := range found.names {
		c := &change{clusterOwn: o, servers: servers, word: word, names: []string{id}}
		if err := c.make(ctx, stdout); err != nil {
			return err
		}
	}
	return nil
}

const (
	// changeRetryPause is the pause before a change is requested again.
	changeRetryPause = 200 * time.Millisecond
	// leaderlessTimeout is how long no node may know a leader before a change that was not requested yet is given up.
	leaderlessTimeout = 5 * time.Second
)

// change is a change of the members under way.
type change struct {
	*clusterOwn
	servers *operator.Servers
	word    string
	names   []string
	// known is set once a node has answered. From then on the members are named by their IDs, so that a repeated
	// request means the same members, and servers are all members.
	known bool
	sent  bool      // the change may have been made
	led   time.Time // when a node last knew a leader, or when the first node answered
	// leaderless is the error of the last node that answered, if it knew no leader. It is reported in preference to
	// other nodes' silence.
	leaderless error
}

// make requests a change until it is known to be made or refused. The requested node may end meanwhile, also because it
// is the removed one.
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
			return silent // no node has answered yet: the addresses are probably wrong
		case c.leaderless != nil && !c.sent && time.Since(c.led) >= leaderlessTimeout:
			return fmt.Errorf("%w; nothing was changed", err)
		}
		timer := time.NewTimer(changeRetryPause)
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

// attempt asks one node for the status, and then for the change if there is a leader.
func (c *change) attempt(ctx context.Context, addr string, stdout io.Writer) error {
	conn, err := c.servers.Dial(ctx, addr, min(c.timeout, nodeTimeout))
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
	if c.word == "RAFT.REPLACE" && len(c.names) == 1 {
		by, err := successor(status, c.names[0])
		if err != nil {
			return err
		}
		c.names = append(c.names, by)
	}
	return c.ask(ctx, conn, stdout)
}

// ask requests the change, and prints the steps that were taken.
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
		// This is the leader's answer: the asked node may not know the member yet.
		if c.gone && strings.HasPrefix(v.Str, "ERR no member is called ") {
			_, err = fmt.Fprintf(c.stderr, "holdfast cluster: %s is no member\n", printable(c.names[0]))
		}
		return err
	}
	var said strings.Builder
	for _, line := range v.Elems {
		said.WriteString(printable(line.Str) + "\n")
	}
	_, err = io.WriteString(stdout, said.String())
	return err
}

// learn takes the servers, and the IDs of the named members, from a node's status.
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

// successor returns the ID of the only member that can replace another: it has no vote, and answers. The leader reports
// an unknown old member.
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
