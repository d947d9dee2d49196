package frontend

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
)

// identity is the user of a connection. It belongs to the connection's own goroutine.
type identity struct {
	user *acl.User
	// rights are those of the user, or nil if the user may do everything.
	rights *rights.Rights
}

func newIdentity(u *acl.User) identity {
	return identity{user: u, rights: u.Rights()}
}

// become sets the user of the connection, after the earlier commands of the pipeline have run.
func (c *conn) become(u *acl.User, authenticated bool) {
	if c.w != nil && !c.executing {
		c.runBatch()
	}
	c.user, c.rights = u, u.Rights()
	if c.track.client != nil {
		c.track.client.Restrict(c.rights)
	}
	c.update(func(s *shown) { s.user = u })
	c.identify()
	c.setAuthenticated(authenticated)
	counted := ""
	if authenticated {
		counted = u.Name
	}
	c.countAs(counted, 0)
	c.setLimit(c.user.Name)
}

// login sets the user of the connection if the password is right. The error is the reason of a refusal.
func (c *conn) login(name, password string) *protocol.Error {
	u := c.srv.cfg.Users.Current().Authenticate(name, password)
	if u == nil {
		return protocol.ErrWrongPass
	}
	return c.admit(u)
}

// admit sets the user of the connection, after its password or certificate was verified.
func (c *conn) admit(u *acl.User) *protocol.Error {
	if q := u.Quota(); q != nil && !c.countAs(u.Name, q.Connections) {
		return protocol.QuotaExceeded(u.Name, "connections to this node", q.Connections)
	}
	c.become(u, true)
	// [Server.UsersChanged] may have run while the connection had no user, and missed it.
	if !u.Keeps(c.srv.cfg.Users.Held().Find(u.Name)) {
		c.become(c.srv.cfg.Users.Held().Default(), false)
		return protocol.ErrWrongPass
	}
	return nil
}

// UsersChanged gives all connections the present limits of their users. It closes the connections of users that were
// removed, turned on or off, or whose rules have changed. Their commands that this node has not begun do not run, so
// that no EXEC runs a queue that other rules allowed.
func (s *Server) UsersChanged() {
	now := s.cfg.Users.Held()
	closed := 0
	for _, c := range s.clients() {
		u := c.view().user
		next := now.Find(u.Name)
		if c.limit.Store(s.limits.of(next)); !u.Keeps(next) {
			c.revoked.Store(true)
			if !c.loading.Load() {
				c.nc.Close()
			}
			closed++
		}
	}
	s.limits.forget(now)
	if closed > 0 {
		s.cfg.Logger.Info("closed connections of users that have changed", "connections", closed)
	}
}

// refusedByRights returns why the user must not send a command, or nil.
func (c *conn) refusedByRights(req *request) *protocol.Error {
	cause, reason, object := acl.Refused(c.rights, req.Command, req.args)
	if reason != "" {
		c.noteRefusal(c.context(), reason, object, c.user.Name)
	}
	return cause
}

// judges reports whether the state machine checks the user's rights while the command runs.
func (id *identity) judges(row *row) bool { return id.rights != nil && row.Reach.ByRights }

// sends returns the name of the user for the state machine, if the command may use sessions, which belong to users. It
// returns "" for other commands, and for a user who may do everything.
func (id *identity) sends(row *row) string {
	if id.rights == nil || row.Route != protocol.Script && row.Group != protocol.GroupModule {
		return ""
	}
	return id.user.Name
}

// rules returns the rules by which the state machine checks rights.
func (id *identity) rules() string { return id.user.Rules() }

// rulesBytes returns the size that the rules add to a request.
func (id *identity) rulesBytes() int {
	if id.rights == nil {
		return 0
	}
	return len(id.user.Name) + len(id.user.Rules())
}

// noteRefusals adds the refusals of a script to ACL LOG, and returns the script's reply.
func (c *conn) noteRefusals(v protocol.Value) protocol.Value {
	reply, refusals := protocol.Unwrap(v)
	for _, r := range refusals {
		c.noteRefusal("lua", r.Reason, r.Object, c.user.Name)
	}
	return reply
}

// noteRefusal adds a refusal to ACL LOG.
func (c *conn) noteRefusal(context, reason, object, user string) {
	c.publish()
	now := time.Now()
	c.srv.aclLog.Add(acl.Refusal{
		Reason: reason, Context: context, Object: object, User: user,
		Client: strings.TrimSuffix(string(c.appendLine(nil, now)), "\n"),
	}, now)
}

// context returns where the client's commands run, in the words of ACL LOG.
func (c *conn) context() string {
	if c.tx != nil {
		return "multi"
	}
	return "toplevel"
}

func aclHandlers() map[string]handler {
	users := func(reply func(us *acl.Users, args [][]byte) protocol.Value) handler {
		return handler{reply: func(c *conn, args [][]byte) protocol.Value {
			return reply(c.srv.cfg.Users.Current(), args[2:])
		}}
	}
	fromFile := handler{reply: func(*conn, [][]byte) protocol.Value {
		return protocol.Err("users come from a file: change the file of --acl-file on every node, then ACL LOAD or SIGHUP")
	}}
	return map[string]handler{
		"acl|whoami":  {reply: func(c *conn, _ [][]byte) protocol.Value { return protocol.Bulk(c.user.Name) }},
		"acl|cat":     {reply: atMostOne(func(_ *conn, args [][]byte) protocol.Value { return acl.Categories(args) })},
		"acl|genpass": {reply: atMostOne(func(_ *conn, args [][]byte) protocol.Value { return acl.GeneratePassword(args) })},
		"acl|log": {barrier: true, reply: atMostOne(func(c *conn, args [][]byte) protocol.Value {
			return c.srv.aclLog.Reply(args, time.Now())
		})},
		"acl|list":    users(func(us *acl.Users, _ [][]byte) protocol.Value { return us.List() }),
		"acl|users":   users(func(us *acl.Users, _ [][]byte) protocol.Value { return protocol.Strings(us.Names()...) }),
		"acl|getuser": users(func(us *acl.Users, args [][]byte) protocol.Value { return us.Describe(string(args[0])) }),
		"acl|dryrun": users(func(us *acl.Users, args [][]byte) protocol.Value {
			return us.DryRun(string(args[0]), args[1:])
		}),
		"acl|load":    {reply: aclLoad},
		"acl|setuser": fromFile,
		"acl|deluser": fromFile,
		"acl|save":    fromFile,
	}
}

// atMostOne returns a handler that, as in Redis, refuses a second argument.
func atMostOne(reply func(c *conn, args [][]byte) protocol.Value) func(c *conn, args [][]byte) protocol.Value {
	return func(c *conn, args [][]byte) protocol.Value {
		if len(args) > 3 {
			return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try ACL HELP.")
		}
		return reply(c, args[2:])
	}
}

func aclLoad(c *conn, _ [][]byte) protocol.Value {
	c.loading.Store(true)
	err := c.srv.cfg.Users.Load("ACL LOAD of " + c.user.Name)
	c.loading.Store(false)
	c.closing = c.closing || c.revoked.Load()
	switch {
	case errors.Is(err, acl.ErrNoFile):
		return protocol.Err(err.Error())
	case err != nil:
		return protocol.Err(strings.ReplaceAll(err.Error(), "\n", ". ") +
			". WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
	}
	return protocol.OK
}
