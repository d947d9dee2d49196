package frontend

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Config is what a [Server] is told. The zero value of every field is a safe default.
type Config struct {
	Limits  Limits
	Timing  Timing
	Node    Node
	Logger  *slog.Logger
	Options Options
	// TLS, when set, is spoken on every connection.
	TLS *tls.Config
	// Password is asked of every client when it is not empty (the user is "default").
	Password string
}

// Node says who answers.
type Node struct {
	// Name is the node's name in the cluster.
	Name string
	// RunID is 40 hex digits, new with every start; empty: drawn by New.
	RunID string
	// Settings are further rows for CONFIG GET, such as "dir".
	Settings []Setting
}

// Setting is a row of CONFIG GET, named as Redis names it.
type Setting struct{ Name, Value string }

// Options open or change behaviour.
type Options struct {
	// Debug allows the DEBUG command.
	Debug bool
	// Faults answers the subcommands of DEBUG that are about the node rather than
	// the client; known is false for others. nil: there are none. It is called only with Debug.
	Faults func(words []string) (reply protocol.Value, known bool)
	// EveryNodeMaster lets every node call itself master in INFO, ROLE and HELLO,
	// for clients that check the role and know but one address. See DESIGN.md.
	EveryNodeMaster bool
}

// Limits bound what one client may cost. A value of zero takes the default.
type Limits struct {
	Clients     int // connections at a time
	Args        int // words of one command
	BulkBytes   int // bytes of one word
	KeyBytes    int // bytes of a key
	ValueBytes  int // bytes of any other word of a data command
	QueryBytes  int // bytes that have arrived and are not parsed yet, and bytes of a MULTI queue
	OutputBytes int // bytes of replies that a client may leave unread for more than a moment
	Pipeline    int // commands that are answered as one batch
	// MemoryBytes is what keys and scripts may take while this node leads, for INFO; 0: no limit.
	MemoryBytes uint64
	// ClientsBytes bounds the buffers, queues and replies of all connections together:
	// beyond it the one that holds most is cut off.
	ClientsBytes int
}

// Timing holds the durations. A value of zero takes the default, except Idle.
type Timing struct {
	Idle      time.Duration // a silent client is disconnected after it; 0: never
	KeepAlive time.Duration // TCP keep-alive probes
	Write     time.Duration // a client that takes no byte for this long is cut off
	Grace     time.Duration // the same, for a client that has more than Limits.OutputBytes unread
	Drain     time.Duration // how long Serve waits for commands in flight after its context ended
	Handshake time.Duration // limit of a TLS handshake
}

// DefaultLimits are the limits of a Config that names none.
func DefaultLimits() Limits {
	return Limits{
		Clients: 10000, Args: 65536,
		BulkBytes: 8 << 20, KeyBytes: 64 << 10, ValueBytes: 8 << 20,
		QueryBytes: 32 << 20, OutputBytes: 64 << 20, Pipeline: 10000, ClientsBytes: 1 << 30,
	}
}

// DefaultTiming are the durations of a Config that names none.
func DefaultTiming() Timing {
	return Timing{
		KeepAlive: 300 * time.Second,
		Write:     30 * time.Second,
		Grace:     time.Second,
		Drain:     10 * time.Second,
		Handshake: 10 * time.Second,
	}
}

func (c Config) withDefaults() Config {
	l, d := &c.Limits, DefaultLimits()
	for _, row := range []struct {
		limit *int
		value int
	}{
		{&l.Clients, d.Clients},
		{&l.Args, d.Args},
		{&l.BulkBytes, d.BulkBytes},
		{&l.KeyBytes, d.KeyBytes},
		{&l.ValueBytes, d.ValueBytes},
		{&l.QueryBytes, d.QueryBytes},
		{&l.OutputBytes, d.OutputBytes},
		{&l.Pipeline, d.Pipeline},
		{&l.ClientsBytes, d.ClientsBytes},
	} {
		if *row.limit <= 0 {
			*row.limit = row.value
		}
	}
	t, dt := &c.Timing, DefaultTiming()
	for _, row := range []struct {
		duration *time.Duration
		value    time.Duration
	}{
		{&t.KeepAlive, dt.KeepAlive},
		{&t.Write, dt.Write},
		{&t.Grace, dt.Grace},
		{&t.Drain, dt.Drain},
		{&t.Handshake, dt.Handshake},
	} {
		if *row.duration <= 0 {
			*row.duration = row.value
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
