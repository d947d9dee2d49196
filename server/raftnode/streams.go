package raftnode

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// streams are the connections of raft's own transport, over which votes and snapshots go. A connection has one request
// at a time, and an answer to each.
//
// Raft reads a snapshot in its main loop, and neither votes nor follows another leader meanwhile. So a request that
// does not come on ends with its connection.
type streams struct {
	raft.StreamLayer
	// within is how long a request that has begun may bring nothing.
	within time.Duration
}

// Accept implements raft.StreamLayer.
func (s streams) Accept() (net.Conn, error) {
	conn, err := s.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	return &asked{Conn: conn, within: s.within}, nil
}

// Dial implements raft.StreamLayer.
func (s streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.StreamLayer.Dial(address, timeout)
	if err != nil {
		return nil, err
	}
	return &asking{Conn: conn}, nil
}

// asked is a connection over which another node asks.
type asked struct {
	net.Conn
	within time.Duration
	begun  bool // a request has, and was not answered
}

// Read reads what has come of a request, or waits for the next one.
func (c *asked) Read(b []byte) (int, error) {
	var until time.Time // none
	if c.begun {
		until = time.Now().Add(c.within)
	}
	_ = c.SetReadDeadline(until)
	n, err := c.Conn.Read(b)
	c.begun = c.begun || n > 0
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Close()
	}
	return n, err
}

// Write answers.
func (c *asked) Write(b []byte) (int, error) {
	c.begun = false
	return c.Conn.Write(b)
}

// asking is a connection over which this node asks.
type asking struct {
	net.Conn
	unanswered int // bytes
}

// Write asks, piece by piece.
func (c *asking) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.unanswered += n
	c.noteError(err)
	return n, err
}

// Read reads an answer.
func (c *asking) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.noteError(err)
	c.unanswered = 0
	return n, err
}

// noteError reports a large request that failed: large packets may have been lost, and the next connections send small
// ones.
func (c *asking) noteError(err error) {
	if err != nil && c.unanswered > wire.Segment {
		c.unanswered = 0
		wire.Stuck(c.Conn)
	}
}

const (
	// connsPerPeer is how many connections to another node raft keeps.
	connsPerPeer = 3
	rpcTimeout   = 10 * time.Second
	// leastFlow is how long a request of raft's own transport may bring nothing, at least: a busy node is not a lost one.
	leastFlow = 2 * time.Second
	// maxAppend bounds the entries of a request to a follower; an entry has up to 1 MiB.
	maxAppend = 32
)
