package frontend

import (
	"net"
	"strconv"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

func roleHandlers() map[string]handler {
	return map[string]handler{"role": {reply: role}}
}

// Every node takes every command, so each could call itself master. Clients that are given several
// addresses look for the master (see DESIGN.md), so only the leader says so, unless
// Options.EveryNodeMaster is set.

// master reports whether this node calls itself master.
func (s *Server) master(st *replica.Status) bool {
	return st.Leading || s.cfg.Options.EveryNodeMaster
}

// mode is what the node calls itself in INFO and HELLO.
func (s *Server) mode(sentinel bool) string {
	if sentinel {
		return "sentinel"
	}
	if s.cfg.Options.ClusterMode {
		return "cluster"
	}
	return "standalone"
}

func (s *Server) helloRole() string {
	if st := s.backend.Status(); s.master(&st) {
		return "master"
	}
	return "replica"
}

func role(c *conn, _ [][]byte) protocol.Value {
	if c.sentinel() {
		return c.srv.sentinelRole()
	}
	st := c.srv.backend.Status()
	if !c.srv.master(&st) {
		leader, up := c.srv.following(&st)
		host, port := splitAddress(leader)
		link := "connected"
		if !up {
			link = "connect"
		}
		n, _ := protocol.ParseInt(port)
		return protocol.Array(protocol.Bulk("slave"), protocol.Bulk(host), protocol.Integer(n),
			protocol.Bulk(link), protocol.Integer(int64(st.Applied)))
	}
	var others []protocol.Value
	for _, f := range st.Followers {
		host, port := splitAddress(f.ClientAddr)
		others = append(others, protocol.Strings(host, port, strconv.FormatUint(offset(&st, f), 10)))
	}
	return protocol.Array(protocol.Bulk("master"), protocol.Integer(int64(st.Committed)), protocol.Array(others...))
}

// following is the address of the leader that a follower names, and whether the leader is there. While
// no leader is known that is the last one, because clients refuse a replica without a master.
func (s *Server) following(st *replica.Status) (addr string, up bool) {
	if st.Leader.ClientAddr != "" {
		return st.Leader.ClientAddr, true
	}
	return s.leadership().Leader.ClientAddr, false
}

// splitAddress splits host:port, because clients get both separately. An unknown address gives an
// empty host and port 0.
func splitAddress(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "0"
	}
	return host, port
}
