package frontend

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

func configHandlers() map[string]handler {
	return map[string]handler{
		"config|get":     {reply: configGet, barrier: true},
		"config|set":     {reply: configSet, barrier: true},
		"config|rewrite": {reply: configRewrite},
	}
}

// settings returns the rows of CONFIG GET: facts about this node under Redis's names, without the password.
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
		// A follower accepts writes, and forwards them.
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

// clientsLimit returns a limit as Redis shows it, with 0 for none.
func clientsLimit(bytes int) string {
	if bytes == math.MaxInt {
		bytes = 0
	}
	return strconv.Itoa(bytes)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func configGet(c *conn, args [][]byte) protocol.Value {
	for _, pattern := range args[2:] {
		if protocol.Match(string(pattern), notifySetting, true) {
			c.srv.backend.AwaitApplied(c.ctx, c.lastWrite) // the client's own CONFIG SET has been applied
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

// nodeSetting is a setting of this node that CONFIG SET changes until the node stops: what it remembers of slow
// commands.
type nodeSetting struct {
	name  string
	least int64
	value *atomic.Int64
}

func (s *Server) nodeSettings() []nodeSetting {
	return []nodeSetting{
		{"latency-monitor-threshold", 0, &s.slow.MonitorMillis},
		{"slowlog-log-slower-than", -1, &s.slow.AboveMicros},
		{"slowlog-max-len", 0, &s.slow.MaxEntries},
	}
}

// nodeSetting returns the setting of this node with a name.
func (s *Server) nodeSetting(name string) (set nodeSetting, ok bool) {
	for _, set := range s.nodeSettings() {
		if strings.EqualFold(set.name, name) {
			return set, true
		}
	}
	return set, false
}

// parse parses a value. why is the error in Redis's words, or empty.
func (n nodeSetting) parse(value string) (v int64, why string) {
	v, ok := protocol.ParseInt(value)
	switch {
	case !ok:
		return 0, "argument couldn't be parsed into an integer"
	case v < n.least:
		return 0, fmt.Sprintf("argument must be between %d and %d inclusive", n.least, int64(math.MaxInt64))
	}
	return v, ""
}

// shownNodeSettings returns rows of CONFIG GET.
func (s *Server) shownNodeSettings() (rows []Setting) {
	for _, set := range s.nodeSettings() {
		rows = append(rows, Setting{set.name, strconv.FormatInt(set.value.Load(), 10)})
	}
	return append(rows, Setting{"latency-tracking", "yes"}, Setting{"latency-tracking-info-percentiles", "50 99 99.9"})
}

// notifySetting is the only setting that clients change for all nodes, as part of the state. Those of nodeSettings are
// private to a node. All others are flags, which Redis, too, refuses to change after the start.
const notifySetting = "notify-keyspace-events"

// newSettings has the values of a CONFIG SET.
type newSettings struct {
	own   map[nodeSetting]int64
	flags []byte // of notifySetting, or nil
}

// configSet runs CONFIG SET. As in Redis it checks all names, then all values, and then sets all.
func configSet(c *conn, args [][]byte) protocol.Value {
	if len(args)%2 != 0 {
		return protocol.Err(errSyntax)
	}
	seen := make(map[string]bool)
	for i := 2; i < len(args); i += 2 {
		name := strings.ToLower(string(args[i]))
		if refusal := c.srv.checkSetting(name, seen[name]); refusal.IsError() {
			return refusal
		}
		seen[name] = true
	}
	given := newSettings{own: make(map[nodeSetting]int64)}
	for i := 2; i < len(args); i += 2 {
		if refusal := given.take(c.srv, string(args[i]), args[i+1]); refusal.IsError() {
			return refusal
		}
	}
	reply := protocol.OK
	if given.flags != nil {
		if reply = c.setNotify(given.flags); reply.IsError() {
			return reply
		}
	}
	for set, v := range given.own {
		set.value.Store(v)
	}
	return reply
}

// checkSetting returns why a setting cannot be set. twice is set if the command has named it before.
func (s *Server) checkSetting(name string, twice bool) (refusal protocol.Value) {
	_, own := s.nodeSetting(name)
	switch {
	case !s.hasSetting(name):
		return protocol.Err("Unknown option or number of arguments for CONFIG SET - '" + name + "'" + flagHint(name))
	case !own && name != notifySetting:
		return errConfigSet(name, "can't set immutable config"+flagHint(name))
	case twice:
		return errConfigSet(name, "duplicate parameter")
	}
	return refusal
}

// flagsOf has the flags of settings that Redis changes by CONFIG SET and a node reads only at its start.
var flagsOf = map[string]string{
	"bind":                       "addr",
	"client-output-buffer-limit": "max-output-bytes",
	"client-query-buffer-limit":  "max-query-bytes",
	"dir":                        "data-dir",
	"loglevel":                   "log-level",
	"maxclients":                 "max-clients",
	"maxmemory":                  "max-memory",
	"maxmemory-clients":          "max-memory-clients",
	"port":                       "addr",
	"requirepass":                "password-file",
	"tcp-keepalive":              "tcp-keepalive",
	"timeout":                    "idle-timeout",
	"tls-ca-cert-file":           "tls-client-ca",
	"tls-cert-file":              "tls-cert",
	"tls-key-file":               "tls-key",
}

// flagHint returns the flag of a setting under the name of Redis or of the flag. A setting that Redis itself refuses,
// such as "databases", has none: its error is Redis's, word for word.
func flagHint(name string) string {
	flag := flagsOf[name]
	for _, own := range flagsOf { // unordered: looks for one name
		if own == name {
			flag = name
		}
	}
	if flag == "" {
		return ""
	}
	return ": it is the flag --" + flag + " of holdfast serve"
}

// take adds a name and its value, or returns why the value is wrong.
func (given *newSettings) take(s *Server, name string, value []byte) (refusal protocol.Value) {
	set, own := s.nodeSetting(name)
	if !own {
		if _, ok := event.ParseClasses(string(value)); !ok {
			return errConfigSet(notifySetting, "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
		}
		given.flags = append([]byte{}, value...)
		return refusal
	}
	v, why := set.parse(string(value))
	if why != "" {
		return errConfigSet(name, why)
	}
	given.own[set] = v
	return refusal
}

func (c *conn) setNotify(flags []byte) protocol.Value {
	body := protocol.AppendRequest(nil, protocol.Head{}, "set-notifications", [][]byte{flags})
	b := replica.Batch{Body: body, Count: 1, Write: true}
	if err := c.srv.backend.Execute(&b); err != nil {
		return c.srv.errorReply(err)
	}
	c.lastWrite = b.Number
	return b.Replies[0]
}

func errConfigSet(name, why string) protocol.Value {
	return protocol.Err("CONFIG SET failed (possibly related to argument '" + name + "') - " + why)
}

func (s *Server) hasSetting(name string) bool {
	for _, row := range s.settings() {
		if strings.EqualFold(row.Name, name) {
			return true
		}
	}
	return false
}
