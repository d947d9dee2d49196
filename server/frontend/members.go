package frontend

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/operations"
	"github.com/holdfast/holdfast/server/replica"
)

// The words RAFT.… are about the members of the cluster. A word that looks answers from what this node knows, also
// while there is no leader.

func memberHandlers() map[string]handler {
	return map[string]handler{
		"raft.members": {reply: func(c *conn, _ [][]byte) protocol.Value { return newCensus(c.srv).members() }},
		"raft.status":  {reply: func(c *conn, _ [][]byte) protocol.Value { return c.srv.ClusterStatus() }},

		"raft.demote":   changeOfMembers(operations.Demote),
		"raft.promote":  changeOfMembers(operations.Promote),
		"raft.remove":   changeOfMembers(operations.Remove),
		"raft.replace":  changeOfMembers(operations.Replace),
		"raft.transfer": changeOfMembers(operations.Transfer),
	}
}

// ClusterStatus is the reply to RAFT.STATUS.
func (s *Server) ClusterStatus() protocol.Value { return newCensus(s).status() }

// Administration changes the members of the cluster. [operations.Desk] is one.
type Administration interface {
	// Ask carries a request out, wherever the leader is. The reply says what was done, also when there is an error.
	Ask(ctx context.Context, q operations.Request) (operations.Reply, error)
}

// changeWithin is how long a change may take before the client is told that its end is not known.
const changeWithin = 25 * time.Second

// mostOfWord bounds what is passed on of a word, in bytes. No name or ID is as long.
const mostOfWord = 256

var (
	errNoAdministration = newError("this node cannot change the members")
	errLongMember       = newError("no member has so long a name")
)

// changeOfMembers is a word that changes who the members are, or who leads.
func changeOfMembers(op operations.Op) handler {
	return handler{barrier: true, reply: func(c *conn, args [][]byte) protocol.Value {
		q, refusal := c.changeAsked(op, args)
		if refusal != nil {
			return refusal.Value()
		}
		desk := c.srv.cfg.Administration
		if desk == nil {
			return errNoAdministration.Value()
		}
		var reply operations.Reply
		var err error
		c.whileConnected(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, changeWithin)
			defer cancel()
			reply, err = desk.Ask(ctx, q)
		})
		return changed(reply.Said, err)
	}}
}

// changeAsked reads a word that changes members.
func (c *conn) changeAsked(op operations.Op, args [][]byte) (q operations.Request, refusal *protocol.Error) {
	c.mu.Lock()
	name := c.shown.name
	c.mu.Unlock()
	q = operations.Request{Op: op, Asker: operations.Asker{
		Node: c.srv.cfg.Node.Name, User: "default", Addr: c.nc.RemoteAddr().String(), Name: name[:min(len(name), mostOfWord)],
	}}
	for i, word := range args[1:] {
		if len(word) > mostOfWord {
			return q, errLongMember
		}
		forces := op == operations.Remove || op == operations.Demote || op == operations.Replace
		switch {
		case i == 0:
			q.Member = string(word)
		case i == 1 && op == operations.Replace:
			q.By = string(word)
		case forces && strings.EqualFold(string(word), "force") && !q.Force:
			q.Force = true
		default:
			return q, protocol.ErrSyntax
		}
	}
	return q, nil
}

// changed is the reply to a change: a line for each step, or why there are no more.
func changed(said []string, err error) protocol.Value {
	done := ""
	if len(said) > 0 {
		done = " (done before: " + strings.Join(said, "; ") + ")"
	}
	switch {
	case err == nil:
		return protocol.Strings(said...)
	case errors.Is(err, operations.ErrNoLeader) && len(said) == 0:
		return protocol.ErrNoLeader.Value()
	case errors.As(err, new(*operations.Refusal)):
		return protocol.Err(err.Error() + done)
	}
	return protocol.ErrValue("UNCERTAIN The change of members may or may not have been made, ask again" + done)
}

// voters counts the members with a vote.
func voters(all []replica.Member) int {
	n, _ := replica.Majority(all)
	return n
}

// majorityOf is how many of the voters make a majority.
func majorityOf(all []replica.Member) int {
	_, n := replica.Majority(all)
	return n
}

// clusterID is the ID of the cluster that this node belongs to; "": none yet.
func (s *Server) clusterID() string {
	if s.cfg.Node.ClusterID == nil {
		return ""
	}
	return s.cfg.Node.ClusterID()
}

// census is the cluster as this node knows it, at one instant.
type census struct {
	st      replica.Status
	leader  replica.Member // zero: none is known
	cluster string
	waiting string // for what, while this node belongs to no cluster
	// troubles are what is wrong beside silent members.
	troubles []string
}

func newCensus(s *Server) *census {
	c := &census{st: s.backend.Status(), cluster: s.clusterID()}
	if s.cfg.Node.Waiting != nil {
		c.waiting = s.cfg.Node.Waiting()
	}
	if s.cfg.Node.Troubles != nil {
		c.troubles = s.cfg.Node.Troubles()
	}
	for i := range c.st.Members {
		if m := &c.st.Members[i]; m.Outdated(c.st.Version) {
			c.troubles = append(c.troubles, m.Name+" runs an older log format: upgrade it now")
		}
	}
	c.leader = c.st.Leader
	for _, m := range c.st.Members {
		if m.ID == c.leader.ID {
			c.leader = m
		}
	}
	return c
}

func (c *census) leads(m replica.Member) bool { return c.leader.ID != "" && m.ID == c.leader.ID }

// self is this node, which may be no member yet, or no more.
func (c *census) self() replica.Member {
	for _, m := range c.st.Members {
		if m.ID == c.st.ID {
			return m
		}
	}
	return replica.Member{ID: c.st.ID, Name: c.st.Name}
}

// silent reports whether the member does not answer the leader, as far as is known. Without a leader only this node
// surely answers.
func (c *census) silent(m replica.Member) bool {
	switch {
	case m.ID == c.st.ID, c.leads(m):
		return false
	case c.leader.ID == "":
		return true
	}
	return m.Silent
}

// lag is how many entries of the leader's log the member lacks; -1: not known.
func (c *census) lag(m replica.Member) int64 {
	switch {
	case c.leads(m):
		return 0
	case c.leader.LogIndex == 0, m.LogIndex == 0:
		return -1
	}
	return max(0, int64(c.leader.LogIndex)-int64(m.LogIndex))
}

func (c *census) role(m replica.Member) string {
	switch {
	case c.leads(m):
		return "leader"
	case m.Voter:
		return "follower"
	}
	return "non-voter"
}

// majority counts: voters, voters that answer, and how many must.
func (c *census) majority() (all, live, quorum int) {
	for _, m := range c.st.Members {
		if m.Voter && !c.silent(m) {
			live++
		}
	}
	all, quorum = replica.Majority(c.st.Members)
	return all, live, quorum
}

func (c *census) status() protocol.Value {
	voters, live, quorum := c.majority()
	all := pairs(
		"node", protocol.Bulk(c.st.Name),
		"node-id", protocol.Bulk(c.st.ID),
		"cluster-id", protocol.Bulk(c.cluster),
		"role", protocol.Bulk(c.role(c.self())),
		"leader", protocol.Bulk(c.leader.Name),
		"term", number(c.st.Term),
		"commit-index", number(c.st.Committed),
		"applied-index", number(c.st.Applied),
		"last-index", number(c.st.LastLog),
		"cluster-version", protocol.Integer(int64(c.st.Version)),
		"held-back-by", protocol.Strings(c.heldBackBy()...),
		"voters", protocol.Integer(int64(voters)),
		"non-voters", protocol.Integer(int64(len(c.st.Members)-voters)),
		"live-voters", protocol.Integer(int64(live)),
		"quorum", protocol.Integer(int64(quorum)),
		"margin", protocol.Integer(int64(c.margin())),
		"members", c.members(),
	)
	if c.waiting != "" {
		all = append(all, pairs("waiting", protocol.Bulk(c.waiting))...)
	}
	if len(c.troubles) > 0 {
		all = append(all, pairs("troubles", protocol.Strings(c.troubles...))...)
	}
	return protocol.Map(all...)
}

// heldBackBy are the names of the members for whose sake the cluster keeps its version.
func (c *census) heldBackBy() (names []string) {
	for _, m := range c.st.HeldBackBy() {
		names = append(names, m.Name)
	}
	return names
}

// margin is how many voters more may fail before the cluster stops; negative: it has stopped.
func (c *census) margin() int {
	_, live, quorum := c.majority()
	if c.leader.ID == "" {
		return min(-1, live-quorum)
	}
	return max(0, live-quorum)
}

func (c *census) members() protocol.Value {
	shown := make([]protocol.Value, len(c.st.Members))
	for i, m := range c.st.Members {
		shown[i] = protocol.Map(pairs(
			"name", protocol.Bulk(m.Name),
			"id", protocol.Bulk(m.ID),
			"peer-address", protocol.Bulk(m.PeerAddr),
			"client-address", protocol.Bulk(m.ClientAddr),
			"voter", flag(m.Voter),
			"role", protocol.Bulk(c.role(m)),
			"silent", flag(c.silent(m)),
			"match-index", number(m.LogIndex),
			"lag", protocol.Integer(c.lag(m)),
			"version", protocol.Bulk(m.Release),
			"log-format", number(m.NewestVersion),
			"hold-version", number(m.HoldVersion),
		)...)
	}
	return protocol.Array(shown...)
}

// pairs are the elements of a map; names and values take turns.
func pairs(words ...any) []protocol.Value {
	elems := make([]protocol.Value, len(words))
	for i, w := range words {
		if name, ok := w.(string); ok {
			elems[i] = protocol.Bulk(name)
			continue
		}
		elems[i] = w.(protocol.Value)
	}
	return elems
}

func number(n uint64) protocol.Value { return protocol.Integer(int64(n)) }

func flag(yes bool) protocol.Value {
	if yes {
		return protocol.Integer(1)
	}
	return protocol.Integer(0)
}
