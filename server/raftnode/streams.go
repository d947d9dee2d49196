package raftnode

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// streams makes the connections of raft's own transport, which carries votes and snapshots. A connection has one
// request at a time, and an answer to each.
//
// Raft reads a snapshot in its main loop, and cannot vote or follow another leader meanwhile. So the connection of a
// request that stalls is ended.
type streams struct {
	raft.StreamLayer
	// within is the time after which a request that has begun and receives no bytes is ended.
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

// asked is a connection for another node's requests.
type asked struct {
	net.Conn
	within time.Duration
	begun  bool // whether a request has begun and was not answered
}

// Read reads bytes of a request, and limits the wait for them once the request has begun.
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

// Write writes an answer, which ends the request.
func (c *asked) Write(b []byte) (int, error) {
	c.begun = false
	return c.Conn.Write(b)
}

// asking is a connection for this node's requests.
type asking struct {
	net.Conn
	unanswered int // bytes of the request written since the last answer
}

// Write writes bytes of a request.
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

// noteError reports a large request that failed, so that later connections send small packets: large ones may have been
// lost.
func (c *asking) noteError(err error) {
	if err != nil && c.unanswered > wire.Segment {
		c.unanswered = 0
		wire.Stuck(c.Conn)
	}
}

const (
	// connsPerPeer bounds the idle connections to another node.
	connsPerPeer = 3
	rpcTimeout   = 10 * time.Second
	// minStallTime is the least value of streams.within: a busy node is not a lost one.
	minStallTime = 2 * time.Second
	// maxAppend bounds the entries of a request to a follower; an entry has up to 1 MiB.
	maxAppend = 32
)
