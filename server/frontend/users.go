package frontend

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
)

// identity is whose connection it is. It belongs to the connection's own goroutine.
type identity struct {
	user *acl.User
	// rights are the user's; nil: the user may do everything.
	rights *rights.Rights
}

func newIdentity(u *acl.User) identity {
	return identity{user: u, rights: u.Rights()}
}

// become makes the connection the user's, behind the commands before in the pipeline; a connection that opens has none.
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

// login makes the connection the user's if the password is right and the user is there. The error is why it did not.
func (c *conn) login(name, password string) *protocol.Error {
	u := c.srv.cfg.Users.Current().Authenticate(name, password)
	if u == nil {
		return protocol.ErrWrongPass
	}
	return c.admit(u)
}

// admit makes the connection the user's, who has shown a password or a certificate.
func (c *conn) admit(u *acl.User) *protocol.Error {
	if q := u.Quota(); q != nil && !c.countAs(u.Name, q.Connections) {
		return protocol.QuotaExceeded(u.Name, "connections to this node", q.Connections)
	}
	c.become(u, true)
	// The users may have changed while this one was not in the connection's list: [Server.UsersChanged] has missed it.
	if !u.Keeps(c.srv.cfg.Users.Held().Find(u.Name)) {
		c.become(c.srv.cfg.Users.Held().Default(), false)
		return protocol.ErrWrongPass
	}
	return nil
}

// UsersChanged gives connections the limits of their users as they are now, and closes the connections of users that
// are gone, that were turned on or off, or whose rules have changed. What those have sent and this node has not taken
// up does not run: no EXEC runs a queue that other rules allowed.
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

// refusedByRights is why the connection's user must not send a command; nil: the user may.
func (c *conn) refusedByRights(req *request) *protocol.Error {
	cause, reason, object := acl.Refused(c.rights, req.Command, req.args)
	if reason != "" {
		c.noteRefusal(c.context(), reason, object, c.user.Name)
	}
	return cause
}

// judges reports whether the state machine judges by the user's rights what the command does.
func (id *identity) judges(row *row) bool { return id.rights != nil && row.Reach.ByRights }

// sends returns the user as the state machine is told of it for a command that may use sessions, which are their
// users'; empty: of any other command, and of a user who may do everything.
func (id *identity) sends(row *row) string {
	if id.rights == nil || row.Route != protocol.Script && row.Group != protocol.GroupModule {
		return ""
	}
	return id.user.Name
}

// rules are what the state machine judges by.
func (id *identity) rules() string { return id.user.Rules() }

// rulesBytes is how much larger a user with rights makes a request.
func (id *identity) rulesBytes() int {
	if id.rights == nil {
		return 0
	}
	return len(id.user.Name) + len(id.user.Rules())
}

// noteRefusals puts what was refused to a script into the log of ACL LOG, and returns the script's reply.
func (c *conn) noteRefusals(v protocol.Value) protocol.Value {
	reply, refusals := protocol.Unwrap(v)
	for _, r := range refusals {
		c.noteRefusal("lua", r.Reason, r.Object, c.user.Name)
	}
	return reply
}

// noteRefusal puts a refusal into the log of ACL LOG.
func (c *conn) noteRefusal(context, reason, object, user string) {
	c.publish()
	now := time.Now()
	c.srv.aclLog.Add(acl.Refusal{
		Reason: reason, Context: context, Object: object, User: user,
		Client: strings.TrimSuffix(string(c.appendLine(nil, now)), "\n"),
	}, now)
}

// context is where the client's commands stand, in the words of ACL LOG.
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

// atMostOne refuses a second argument as Redis does.
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
