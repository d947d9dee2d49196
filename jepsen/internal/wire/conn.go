package wire

import (
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
	nc      net.Conn
	resp    *protocol.Conn
	timeout time.Duration
	broken  bool
}

// New wraps a connection; timeout bounds each exchange.
func New(nc net.Conn, timeout time.Duration) *Conn {
	return &Conn{nc: nc, resp: protocol.NewConn(nc), timeout: timeout}
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

// Pipeline sends all commands in one write, then reads as many replies.
func (c *Conn) Pipeline(commands [][]string) []Reply {
	replies := make([]Reply, len(commands))
	if c.broken {
		return fill(replies, Reply{Outcome: history.Fail, Why: "connection is closed", Retried: true})
	}
	for _, words := range commands {
		c.resp.Append(words...)
	}
	if err := c.nc.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		c.Close()
		return fill(replies, Reply{Outcome: history.Fail, Why: err.Error(), Retried: true})
	}
	if n, err := c.resp.Flush(); err != nil {
		c.Close()
		lost := lostReply(err)
		if n == 0 {
			lost.Outcome = history.Fail
		}
		return fill(replies, lost)
	}
	for i := range replies {
		v, err := c.resp.Receive()
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
