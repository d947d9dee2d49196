// Package resp is a client connection without a library: [protocol.Conn] with one deadline for each exchange. A client
// library takes ten times the CPU of the load generator's machine, and does not pipeline.
//
// It promises that an error reply is returned as a [*ReplyError], distinct from a broken connection.
package resp

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// ReplyError is an error reply of the server.
type ReplyError struct{ Text string }

// Error returns the reply's text.
func (e *ReplyError) Error() string { return e.Text }

// Conn is a connection. It is not safe for concurrent use.
type Conn struct {
	nc      net.Conn
	resp    *protocol.Conn
	timeout time.Duration
}

// Dial opens a connection, on which no call blocks longer than timeout.
func Dial(ctx context.Context, addr string, timeout time.Duration) (*Conn, error) {
	nc, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{nc: nc, resp: protocol.NewConn(nc), timeout: timeout}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.nc.Close() }

// Append buffers a command for the next [Conn.Flush].
func (c *Conn) Append(words ...string) { c.resp.Append(words...) }

// Flush sends the buffered commands.
func (c *Conn) Flush() error {
	// One deadline covers the flush and its replies: setting it costs as much as a small read.
	if err := c.nc.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.resp.Flush()
	return err
}

// Read reads the reply to a sent command.
func (c *Conn) Read() (protocol.Value, error) {
	v, err := c.resp.Receive()
	if err == nil && v.IsError() {
		err = &ReplyError{Text: v.Str}
	}
	return v, err
}

// Do sends a command and reads its reply.
func (c *Conn) Do(words ...string) (protocol.Value, error) {
	c.Append(words...)
	if err := c.Flush(); err != nil {
		return protocol.Value{}, err
	}
	return c.Read()
}

// Ask sends a command on a connection of its own.
func Ask(ctx context.Context, addr string, timeout time.Duration, words ...string) (protocol.Value, error) {
	c, err := Dial(ctx, addr, timeout)
	if err != nil {
		return protocol.Value{}, err
	}
	defer c.Close()
	v, err := c.Do(words...)
	if err != nil {
		return v, fmt.Errorf("ask %s for %s: %w", addr, words[0], err)
	}
	return v, nil
}
