package frontend

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/reconfig"
)

// The RAFT commands that change the members of the cluster.

func memberHandlers() map[string]handler {
	return map[string]handler{
		"raft.demote":   changeOfMembers(reconfig.Demote),
		"raft.promote":  changeOfMembers(reconfig.Promote),
		"raft.remove":   changeOfMembers(reconfig.Remove),
		"raft.repair":   changeOfMembers(reconfig.Repair),
		"raft.replace":  changeOfMembers(reconfig.Replace),
		"raft.transfer": changeOfMembers(reconfig.Transfer),
	}
}

// changeWithin bounds the time of a change. The client then gets the error that the outcome is unknown.
const changeWithin = 25 * time.Second

// maxWordBytes bounds a word of a change. All names and IDs are shorter.
const maxWordBytes = 256

var (
	errNoAdministration = protocol.NewError("this node cannot change the members")
	errLongMember       = protocol.NewError("no member has so long a name")
)

// changeOfMembers returns the handler of a command that changes the members or the leader.
func changeOfMembers(op reconfig.Op) handler {
	return handler{barrier: true, reply: func(c *conn, args [][]byte) protocol.Value {
		q, refusal := c.srv.changeAsked(&c.profile, op, args)
		if refusal != nil {
			return refusal.Value()
		}
		service := c.srv.cfg.Administration
		if service == nil {
			return errNoAdministration.Value()
		}
		var reply reconfig.Reply
		var err error
		c.whileConnected(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, changeWithin)
			defer cancel()
			reply, err = service.Ask(ctx, q)
		})
		return changed(reply.Steps, err)
	}}
}

// changeAsked parses a command that changes members.
func (s *Server) changeAsked(p *profile, op reconfig.Op, args [][]byte) (q reconfig.Request, refusal *protocol.Error) {
	name := p.view().name
	q = reconfig.Request{Op: op, Asker: reconfig.Asker{
		Node: s.cfg.Node.Name, User: "default", Addr: p.addr.String(), Name: name[:min(len(name), maxWordBytes)],
	}}
	for i, word := range args[1:] {
		if len(word) > maxWordBytes {
			return q, errLongMember
		}
		forces := op == reconfig.Remove || op == reconfig.Demote || op == reconfig.Replace || op == reconfig.Repair
		switch {
		case i == 0:
			q.Member = string(word)
		case i == 1 && op == reconfig.Replace:
			q.By = string(word)
		case forces && strings.EqualFold(string(word), "force") && !q.Force:
			q.Force = true
		default:
			return q, protocol.ErrSyntax
		}
	}
	return q, nil
}

// changed returns the reply to a change: a line for each step, or the error.
func changed(said []string, err error) protocol.Value {
	done := ""
	if len(said) > 0 {
		done = " (done before: " + strings.Join(said, "; ") + ")"
	}
	switch {
	case err == nil:
		return protocol.Strings(said...)
	case errors.Is(err, reconfig.ErrNoLeader) && len(said) == 0:
		return protocol.ErrNoLeader.Value()
	case errors.As(err, new(*reconfig.Refusal)):
		return protocol.Err(err.Error() + done)
	}
	return protocol.ErrValue("UNCERTAIN The change of members may or may not have been made, ask again" + done)
}
