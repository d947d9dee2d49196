// Package fakeredis is a server for tests of the generator. It implements only the generator's commands, without
// expiry. A test can make it refuse.
package fakeredis

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// Server is a fake.
type Server struct {
	Addr string
	// Role is the first element of ROLE's reply. Set it before the first connection.
	Role string
	// Replicas is WAIT's reply. Set it before the first connection.
	Replicas int64
	// Info has the replies of INFO in turn; the last is repeated. Set it before the first connection.
	Info []string

	mu      sync.Mutex
	keys    map[string]string // guarded by mu
	scripts map[string]bool   // guarded by mu
	counts  map[string]int    // guarded by mu
	refuse  string            // guarded by mu
	times   int               // guarded by mu; remaining refusals, -1 for all
}

// New returns a fake that listens on l.
func New(l net.Listener) *Server {
	return &Server{
		Addr: l.Addr().String(), Role: "master",
		keys: make(map[string]string), scripts: make(map[string]bool), counts: make(map[string]int),
	}
}

// Serve serves all connections until l is closed.
func (s *Server) Serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(c)
	}
}

// Start listens on a free port until the test ends.
func Start(t *testing.T) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := New(l)
	go s.Serve(l)
	t.Cleanup(func() { _ = l.Close() })
	return s
}

// Refuse makes SET return an error; "" ends that.
func (s *Server) Refuse(line string) { s.RefuseTimes(line, -1) }

// RefuseTimes makes a number of SETs return an error.
func (s *Server) RefuseTimes(line string, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.times = line, times
}

// Count returns how often a command was received.
func (s *Server) Count(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[command]
}

// Keep writes a key that is not the generator's.
func (s *Server) Keep(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = "kept"
}

// Keys returns the number of keys.
func (s *Server) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

func (s *Server) serve(c net.Conn) {
	defer c.Close()
	r := protocol.NewReader(protocol.DefaultLimits())
	var pending, out []byte
	chunk := make([]byte, 64<<10)
	for {
		n, err := c.Read(chunk)
		if err != nil {
			return
		}
		pending = append(pending, chunk[:n]...)
		for {
			words, used, err := r.Next(pending)
			pending = pending[used:]
			if errors.Is(err, protocol.ErrIncomplete) {
				break
			}
			if err != nil {
				return
			}
			out = s.answer(words).AppendTo(out, protocol.RESP2)
		}
		if _, err := c.Write(out); err != nil {
			return
		}
		out = out[:0]
	}
}

func (s *Server) answer(raw [][]byte) protocol.Value {
	words := make([]string, len(raw))
	for i, w := range raw {
		words[i] = string(w)
	}
	name := strings.ToLower(words[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
	switch name {
	case "ping":
		return protocol.Simple("PONG")
	case "set":
		return s.set(words)
	case "get":
		if v, ok := s.keys[words[1]]; ok {
			return protocol.Bulk(v)
		}
		return protocol.Null
	case "del":
		delete(s.keys, words[1])
		return protocol.Integer(1)
	case "wait":
		return protocol.Integer(s.Replicas)
	case "info":
		return s.info()
	case "dbsize":
		return protocol.Integer(int64(len(s.keys)))
	case "flushall":
		clear(s.keys)
		return protocol.OK
	case "debug", "bgsave", "bgrewriteaof":
		return protocol.OK
	case "role":
		return protocol.Array(protocol.Bulk(s.Role))
	case "eval":
		s.scripts[kind(words[1])] = true
		return s.run(kind(words[1]), words[3:])
	case "evalsha":
		return s.evalsha(words)
	case "delifeq":
		return s.run("release", words[1:])
	}
	return protocol.Err("unknown command '" + words[0] + "'")
}

func (s *Server) info() protocol.Value {
	if len(s.Info) == 0 {
		return protocol.Bulk("")
	}
	text := s.Info[0]
	if len(s.Info) > 1 {
		s.Info = s.Info[1:]
	}
	return protocol.Bulk(text)
}

func (s *Server) set(words []string) protocol.Value {
	if s.refuse != "" && s.times != 0 {
		s.times--
		return protocol.ErrValue(s.refuse)
	}
	exclusive := len(words) > 3 && strings.EqualFold(words[3], "nx")
	if _, held := s.keys[words[1]]; held && exclusive {
		return protocol.Null
	}
	s.keys[words[1]] = words[2]
	return protocol.OK
}

// kind distinguishes the generator's two scripts.
func kind(source string) string {
	if strings.Contains(source, "pexpire") {
		return "renew"
	}
	return "release"
}

// evalsha identifies a script by its number of arguments, once EVAL has loaded it.
func (s *Server) evalsha(words []string) protocol.Value {
	script := "release"
	if len(words) > 5 {
		script = "renew"
	}
	if !s.scripts[script] {
		return protocol.ErrValue("NOSCRIPT No matching script. Please use EVAL.")
	}
	return s.run(script, words[3:])
}

func (s *Server) run(script string, args []string) protocol.Value {
	if s.keys[args[0]] != args[1] {
		return protocol.Integer(0)
	}
	if script == "release" {
		delete(s.keys, args[0])
	}
	return protocol.Integer(1)
}
