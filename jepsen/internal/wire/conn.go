// Package wire is the clients' side of RESP: small on purpose, so that every byte
// sent and every reason for an outcome is known.
//
// It promises: a request is written once and never again (libraries that retry are imitated
// by their dialects, with each try on record), and every exchange ends in one of three
// outcomes, by these rules and nothing else:
//
//   - a reply that is no error: ok;
//   - an error that [protocol.OutcomeOf] says is sent in place of doing anything, a connection that
//     could not be made, or a write that sent nothing: fail;
//   - any other error (raised by a script, or unknown), a time-out, a connection lost after
//     the request was written, bytes that are no reply: info.
//
// Pushes of RESP3 come between replies and are none: [Conn.OnPush] gets them, whenever the connection is read.
//
// Start reading at [Conn.Pipeline].
package wire

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol"
)

// Reply is how a command ended.
type Reply struct {
	Value   protocol.Value // of an OK
	Outcome history.Outcome
	Why     string // of the others: the error line, or what happened to the connection
	// Retried: go-redis, redis-py or ioredis would send the command again by itself.
	Retried bool
}

// NoScript reports whether the reply is Redis's answer to an unknown script.
func (r Reply) NoScript() bool { return strings.HasPrefix(r.Why, "NOSCRIPT ") }

// Conn is a connection of a client. A Conn is not safe for concurrent use.
type Conn struct {
	// OnPush, if not nil, gets what the server sends unasked, in the order of arrival: see [Unasked].
	OnPush func(protocol.Value)

	nc      net.Conn
	in      *bufio.Reader
	timeout time.Duration
	broken  bool
}

// New wraps a connection; timeout bounds each exchange.
func New(nc net.Conn, timeout time.Duration) *Conn {
	return &Conn{nc: nc, in: bufio.NewReader(nc), timeout: timeout}
}

// Broken reports whether the connection is of no use any more: a reply is missing.
func (c *Conn) Broken() bool { return c.broken }

// Close ends the connection.
func (c *Conn) Close() error {
	c.broken = true
	return c.nc.Close()
}

// Do sends a command and waits for the reply.
func (c *Conn) Do(words ...string) Reply { return c.Pipeline([][]string{words})[0] }

// DoWithin is [Conn.Do] of a command that the server may answer later than others: wait more is allowed.
func (c *Conn) DoWithin(wait time.Duration, words ...string) Reply {
	usual := c.timeout
	defer func() { c.timeout = usual }()
	c.timeout += wait
	return c.Do(words...)
}

// Listen waits for pushes until d is over or done says that they are enough, and reports whether the
// connection still stands.
func (c *Conn) Listen(d time.Duration, done func() bool) bool {
	end := time.Now().Add(d)
	for !c.broken && !done() {
		if c.in.Buffered() == 0 && !time.Now().Before(end) {
			break
		}
		if err := c.nc.SetReadDeadline(end); err != nil {
			c.Close()
			break
		}
		if _, err := c.in.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if _, err := c.receive(c.timeout, false); err != nil {
			c.Close()
		}
	}
	return !c.broken
}

// Unasked reports whether a value is no reply: a push of RESP3, or a message of RESP2. That a subscription
// begins or ends is a reply.
func Unasked(v protocol.Value) bool {
	if len(v.Elems) == 0 || v.Kind != protocol.KindPush && v.Kind != protocol.KindArray {
		return v.Kind == protocol.KindPush
	}
	switch v.Elems[0].Str {
	case "message", "pmessage", "smessage":
		return true
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return false
	}
	return v.Kind == protocol.KindPush
}

var errUnasked = errors.New("a reply that was not asked for")

// receive reads up to the next reply, or no further than the next push where no reply is due. Pushes
// come between replies.
func (c *Conn) receive(within time.Duration, reply bool) (protocol.Value, error) {
	// What has come already is read, whatever has become of the connection.
	if err := c.nc.SetReadDeadline(time.Now().Add(within)); err != nil && c.in.Buffered() == 0 {
		return protocol.Value{}, err
	}
	for {
		v, err := protocol.ReadValue(c.in)
		switch {
		case err != nil:
			return v, err
		case !Unasked(v) && reply:
			return v, nil
		case !Unasked(v):
			return v, errUnasked
		}
		if c.OnPush != nil {
			c.OnPush(v)
		}
		if !reply {
			return v, nil
		}
	}
}

// Pipeline sends all commands in one write, then reads as many replies.
func (c *Conn) Pipeline(commands [][]string) []Reply {
	replies := make([]Reply, len(commands))
	if c.broken {
		return fill(replies, Reply{Outcome: history.Fail, Why: "connection is closed", Retried: true})
	}
	var out []byte
	for _, words := range commands {
		out = protocol.AppendCommand(out, words...)
	}
	end := time.Now().Add(c.timeout)
	if err := c.nc.SetDeadline(end); err != nil {
		c.Close()
		return fill(replies, Reply{Outcome: history.Fail, Why: err.Error(), Retried: true})
	}
	if n, err := c.nc.Write(out); err != nil {
		c.Close()
		lost := lostReply(err)
		if n == 0 {
			lost.Outcome = history.Fail
		}
		return fill(replies, lost)
	}
	for i := range replies {
		v, err := c.receive(time.Until(end), true)
		if err != nil {
			c.Close()
			fill(replies[i:], lostReply(err))
			break
		}
		replies[i] = replyOf(v)
	}
	return replies
}

func fill(replies []Reply, r Reply) []Reply {
	for i := range replies {
		replies[i] = r
	}
	return replies
}

// lostReply is the outcome of a request whose reply will never be read.
func lostReply(err error) Reply {
	why := "connection lost: " + err.Error()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		why = "timed out"
	}
	return Reply{Outcome: history.Info, Why: why, Retried: true}
}

func replyOf(v protocol.Value) Reply {
	if !v.IsError() {
		return Reply{Value: v, Outcome: history.OK}
	}
	r := Reply{Outcome: history.Info, Why: v.Str, Retried: protocol.Retried(v.Str)}
	if protocol.OutcomeOf(v.Str) == protocol.OutcomeNone {
		r.Outcome = history.Fail
	}
	return r
}
