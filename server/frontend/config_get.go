package frontend

import (
	"math"
	"net"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

func configHandlers() map[string]handler {
	return map[string]handler{
		"config|get":     {reply: configGet, barrier: true},
		"config|set":     {reply: configSet, barrier: true},
		"config|rewrite": {reply: configRewrite},
	}
}

// settings are the rows of CONFIG GET: facts about this node under Redis's names. The password is
// left out.
func (s *Server) settings() []Setting {
	c := &s.cfg
	bind, port, _ := net.SplitHostPort(s.address(false))
	rows := []Setting{
		{"appendfsync", "always"},
		{"appendonly", "yes"},
		{"bind", bind},
		{"client-output-buffer-limit", "normal " + OutputLimit{0, c.MaxOutputBytes, c.GraceTimeout}.String() +
			" slave 0 0 0 pubsub " + c.PubSub.String()},
		{"client-query-buffer-limit", strconv.Itoa(c.MaxQueryBytes)},
		{"cluster-enabled", yesNo(c.Options.ClusterMode)},
		{"databases", strconv.Itoa(protocol.MaxDatabases)},
		{"enable-debug-command", yesNo(c.Options.Debug)},
		{"maxclients", strconv.Itoa(c.MaxClients)},
		{"maxmemory", strconv.FormatUint(c.MaxMemoryBytes, 10)},
		{"maxmemory-clients", clientsLimit(c.MaxMemoryClientsBytes)},
		{"maxmemory-policy", "noeviction"},
		{notifySetting, s.backend.Stats().Notifies.String()},
		{"port", port},
		{"proto-max-bulk-len", strconv.Itoa(c.MaxBulkBytes)},
		// A follower takes writes, and forwards them.
		{"replica-read-only", "no"},
		{"save", ""},
		{"slave-read-only", "no"},
		{"tcp-keepalive", seconds(c.TCPKeepAlive)},
		{"timeout", seconds(c.IdleTimeout)},
		{"tracking-table-max-keys", strconv.Itoa(c.Tracking.MaxKeys())},
	}
	rows = append(rows, s.shownNodeSettings()...)
	return append(rows, c.Node.Settings...)
}

// clientsLimit is 0, as in Redis, where there is no limit.
func clientsLimit(bytes int) string {
	if bytes == math.MaxInt {
		bytes = 0
	}
	return strconv.Itoa(bytes)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func configGet(c *conn, args [][]byte) protocol.Value {
	for _, pattern := range args[2:] {
		if protocol.Match(string(pattern), notifySetting, true) {
			c.srv.backend.AwaitApplied(c.ctx, c.lastWrite) // a client finds what it has set
			break
		}
	}
	var found []protocol.Value
	for _, row := range c.srv.settings() {
		for _, pattern := range args[2:] {
			if protocol.Match(string(pattern), row.Name, true) {
				found = append(found, protocol.Bulk(row.Name), protocol.Bulk(row.Value))
				break
			}
		}
	}
	return protocol.Map(found...)
}

func configRewrite(*conn, [][]byte) protocol.Value {
	return protocol.Err("The server is running without a config file")
}
