package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// notifySetting is the one setting that clients change for all nodes: part of the state. The settings of
// config_node.go are about one node. The others are flags, which Redis refuses with the same words if they
// are fixed at the start.
const notifySetting = "notify-keyspace-events"

// newSettings are what a CONFIG SET sets.
type newSettings struct {
	own   map[nodeSetting]int64
	flags []byte // of notifySetting; nil: not given
}

// configSet is CONFIG SET. All names are checked, then all values, and then all are set, as in Redis.
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

// checkSetting returns why a setting cannot be set; twice: it was named before.
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

// flagsOf are the flags for what Redis changes by CONFIG SET, and a node at its start alone.
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
	"proto-max-bulk-len":         "max-bulk-bytes",
	"requirepass":                "password-file",
	"tcp-keepalive":              "tcp-keepalive",
	"timeout":                    "idle-timeout",
	"tls-ca-cert-file":           "tls-client-ca",
	"tls-cert-file":              "tls-cert",
	"tls-key-file":               "tls-key",
}

// flagHint names the flag of a setting, which may be called as Redis or as the flag calls it. What Redis refuses
// itself, such as "databases", has none: the error is Redis's to the letter.
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

// take adds a pair, or returns what is wrong with the value.
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
	b := replica.Batch{Body: protocol.AppendRequest(nil, 0, "notify", [][]byte{flags}), Count: 1, Write: true}
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
