package fsm

import (
	"fmt"
	"math"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// minConnectionMillis is the shortest allowed lease of a session that is attached to a connection. A node must be able
// to renew such sessions in time.
const minConnectionMillis = 1000

var (
	errNoConnection = protocol.Err("a session lives with the connection of a client, and here is none")
	errShortSession = protocol.Err("a session that lives with a connection has PX 1000 at least")
	errFullSession  = protocol.Err(fmt.Sprintf("a session has at most %d holds and places in queues", locks.MaxPerSession))
	errManySessions = protocol.Err("too many sessions live with this connection")
)

func sessionOpenOp(c *call) protocol.Value {
	var millis int64
	var name string
	connection, leased := false, false
	problem := parseLockOptions(c.Args[1:], func(word string) bool {
		lives := command.IsWord(word, "CONNECTION")
		connection = connection || lives
		return lives
	}, func(word, value string) (known bool, problem protocol.Value) {
		unit := leaseUnit(word)
		switch {
		case unit != 0:
			leased = true
			millis, problem = parseLease(value, unit, c.Args[0])
		case command.IsWord(word, "NAME"):
			name, problem = parseText("NAME", value)
		default:
			return false, problem
		}
		return true, problem
	})
	switch {
	case problem.IsError():
		return problem
	case !leased:
		return command.ErrSyntax
	case connection && c.from.client.Conn == 0:
		return errNoConnection
	case connection && millis < minConnectionMillis:
		return errShortSession
	case !c.paysForKeys(1):
		return command.ErrOverWork
	}
	id, err := c.changeLocks(0).OpenSession(millis, c.from.client, connection, name, c.user, int16(c.Account))
	c.publishLockEvents()
	if err != nil {
		return sessionRefusal(err)
	}
	if connection {
		c.notifyKept(id, millis)
	}
	return protocol.Integer(int64(id))
}

func sessionRefusal(err error) protocol.Value {
	if err == locks.ErrFull {
		return errManySessions
	}
	return refusalOf(err)
}

// notifyKept emits SessionKept for a session that is attached to the client's connection now, if it is a connection of
// this node.
func (c *call) notifyKept(id uint64, leaseMillis int64) {
	if c.from.client.Origin == c.thisNode {
		c.Events = append(c.Events, event.Event{Kind: event.SessionKept, Lock: &event.LockNews{
			Conn:    c.from.client.Conn,
			Session: id, LeaseMillis: leaseMillis,
		}})
	}
}

// sessionOf parses "<command> <id>" and charges the work for a key. It returns the result of usableSession.
func (c *call) sessionOf() (id uint64, problem protocol.Value) {
	n, ok := protocol.ParseInt(c.Args[1])
	switch {
	case !ok:
		return 0, command.ErrNotInteger
	case !c.paysForKeys(1):
		return 0, command.ErrOverWork
	}
	return c.usableSession(uint64(max(0, n))), problem
}

// usableSession returns id if the user may use the session, or if id is 0. Otherwise it returns an id that no session
// has, so that the reply does not reveal the session.
func (c *call) usableSession(id uint64) uint64 {
	if id == 0 || c.st.Locks.MayUse(id, c.user) {
		return id
	}
	return math.MaxUint64
}

func sessionKeepaliveOp(c *call) protocol.Value {
	id, problem := c.sessionOf()
	if problem.IsError() {
		return problem
	}
	left, ok := c.changeLocks(0).KeepAlive(id)
	c.publishLockEvents()
	if !ok {
		return protocol.Null
	}
	return protocol.Integer(left)
}

func sessionAttachOp(c *call) protocol.Value {
	if len(c.Args) > 2 { // the client's node removes the option HEARTBEAT
		return protocol.WrongArity("session.attach").Value()
	}
	id, problem := c.sessionOf()
	if problem.IsError() {
		return problem
	}
	if c.from.client.Conn == 0 {
		return errNoConnection
	}
	before := c.st.Locks.Session(id, c.NowMillis)
	switch {
	case before == nil:
		return protocol.Null
	case before.LeaseMillis < minConnectionMillis:
		return errShortSession
	}
	ok, err := c.changeLocks(0).Attach(id, c.from.client)
	c.publishLockEvents()
	switch {
	case err != nil:
		return sessionRefusal(err)
	case !ok:
		return protocol.Null
	}
	if before.Client != c.from.client && before.Client.Origin == c.thisNode {
		c.Events = append(c.Events, event.Event{Kind: event.SessionLeft, Lock: &event.LockNews{
			Conn:    before.Client.Conn,
			Session: id,
		}})
	}
	c.notifyKept(id, before.LeaseMillis)
	return command.One
}

func sessionCloseOp(c *call) protocol.Value {
	id, problem := c.sessionOf()
	if problem.IsError() {
		return problem
	}
	n, ok := c.changeLocks(0).CloseSession(id)
	c.publishLockEvents()
	if !ok {
		return protocol.Null
	}
	return protocol.Integer(int64(n))
}

func sessionInfoOp(c *call) protocol.Value {
	id, problem := c.sessionOf()
	if problem.IsError() {
		return problem
	}
	s := c.st.Locks.Session(id, c.NowMillis)
	if s == nil {
		c.HasDue = c.HasDue || c.Reading && c.st.Locks.Session(id, c.st.ClockMillis) != nil
		return protocol.Null
	}
	return c.showSession(s)
}

func sessionListOp(c *call) protocol.Value {
	var cursor uint64
	count := defaultListed
	problem := parseLockOptions(c.Args[1:], noFlag, func(word, value string) (known bool, problem protocol.Value) {
		return parsePage(word, value, &cursor, &count)
	})
	switch {
	case problem.IsError():
		return problem
	case !c.paysForKeys(count):
		return command.ErrOverWork
	}
	c.NoteDueLocks()
	rows, next, looked := c.st.Locks.Sessions(c.user, cursor, count, c.NowMillis)
	if c.Spend(int64(looked) * command.KeyWork); !c.Fits(0) {
		return command.ErrOverWork
	}
	shown := make([]protocol.Value, len(rows))
	for i := range rows {
		shown[i] = c.showSession(&rows[i])
	}
	return protocol.Array(protocol.Bulk(command.FormatUint(next)), protocol.Array(shown...))
}

func (c *call) showSession(s *locks.SessionInfo) protocol.Value {
	return protocol.Map(
		protocol.Bulk("id"), protocol.Integer(int64(s.ID)),
		protocol.Bulk("name"), protocol.Bulk(s.Name),
		protocol.Bulk("user"), protocol.Bulk(s.User),
		protocol.Bulk("px"), protocol.Integer(s.LeaseMillis),
		protocol.Bulk("left"), protocol.Integer(s.LeftMillis),
		protocol.Bulk("opened"), protocol.Integer(c.ToWall(s.OpenedMillis)),
		protocol.Bulk("connection"), command.Boolean(s.Connection),
		protocol.Bulk("client"), protocol.Bulk(showClient(s.Client)),
		protocol.Bulk("holds"), protocol.Integer(int64(s.Holds)),
		protocol.Bulk("waiters"), protocol.Integer(int64(s.Waiters)))
}
