package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
)

// validate returns why a data command must not reach the log: arguments that are too long, or a Lua
// source that does not compile. The result for a valid command is nil.
func (c *conn) validate(req *request) *protocol.Error {
	if refusal := c.srv.inClusterMode(req); refusal != nil {
		return refusal
	}
	if refusal := req.tooLong(&c.srv.cfg.Limits); refusal != nil {
		return refusal
	}
	if req.source == 0 {
		return nil
	}
	return c.validateScript(req)
}

// validateScript compiles the Lua source of EVAL and SCRIPT LOAD on this node, so a source that
// does not compile costs the other nodes nothing. Redis checks EVAL's number of keys first.
func (c *conn) validateScript(req *request) *protocol.Error {
	if req.nameArgs == 1 {
		if refusal := req.badKeyCount(); refusal != nil {
			return refusal
		}
	}
	source := req.args[req.source]
	if len(source) >= largeSource {
		c.runBatch() // what stands before does not wait for the compiler
	}
	if err := c.srv.compiled.check(source); err != nil {
		prefix, text, _ := strings.Cut(err.Error(), " ")
		return &protocol.Error{Prefix: prefix, Text: text}
	}
	return nil
}

// inClusterMode returns why a data command is refused because of the mode that the node is in.
func (s *Server) inClusterMode(req *request) *protocol.Error {
	slots := req.Group == protocol.GroupCluster
	switch {
	case !s.cfg.Options.ClusterMode && slots:
		return discovery.ErrNoCluster
	case !s.cfg.Options.ClusterMode || slots:
		return nil
	case req.Name == "move" || req.Name == "swapdb":
		return protocol.NewError(strings.ToUpper(req.Name) + " is not allowed in cluster mode")
	case req.Name == "copy" && req.copiesElsewhere():
		return protocol.NewError("Copying to another database is not allowed in cluster mode")
	}
	return nil
}

// parseDatabase reads the number of a database. In cluster mode there is only database 0.
func (s *Server) parseDatabase(arg []byte) (db int, refusal protocol.Value, refused bool) {
	n, ok := protocol.ParseInt(string(arg))
	switch {
	case !ok:
		return 0, protocol.ErrNotInteger.Value(), true
	case int64(int32(n)) != n:
		return 0, protocol.Err("value is out of range, value must between -2147483648 and 2147483647"), true
	case n != 0 && s.cfg.Options.ClusterMode:
		return 0, protocol.Err("SELECT is not allowed in cluster mode"), true
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, protocol.ErrDBIndex.Value(), true
	}
	return int(n), protocol.Value{}, false
}
