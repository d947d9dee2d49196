package frontend

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
)

// validate returns why a data command must not reach the log: arguments that are too long, or a Lua
// source that does not compile. The result for a valid command is nil.
func (c *conn) validate(row *row, args [][]byte) *protocol.Error {
	if refusal := c.srv.inClusterMode(row, args); refusal != nil {
		return refusal
	}
	l := &c.srv.cfg.Limits
	short := min(l.MaxKeyBytes, l.MaxValueBytes)
	for _, arg := range args[row.nameArgs:] {
		if len(arg) > short {
			if refusal := tooLong(row, args, l); refusal != nil {
				return refusal
			}
			break
		}
	}
	if row.source == 0 {
		return nil
	}
	return c.validateScript(row, args)
}

// tooLong finds out which arguments are keys. Most commands never get here.
func tooLong(row *row, args [][]byte, l *Limits) *protocol.Error {
	isKey := make([]bool, len(args))
	// If the keys cannot be found, the state machine refuses the command.
	positions, _ := row.KeyPositions(args)
	for _, p := range positions {
		isKey[p] = true
	}
	for i, arg := range args {
		if isKey[i] && len(arg) > l.MaxKeyBytes {
			return protocol.NewError(fmt.Sprintf("key exceeds maximum allowed size (%d bytes)", l.MaxKeyBytes))
		}
		if len(arg) > l.MaxValueBytes {
			return protocol.ErrStringTooBig
		}
	}
	return nil
}

// validateScript compiles the Lua source of EVAL and SCRIPT LOAD on this node, so a source that
// does not compile costs the other nodes nothing. Redis checks EVAL's number of keys first.
func (c *conn) validateScript(row *row, args [][]byte) *protocol.Error {
	if row.nameArgs == 1 {
		n, ok := protocol.ParseInt(string(args[2]))
		switch {
		case !ok:
			return protocol.ErrNotInteger
		case n > int64(len(args)-3):
			return protocol.NewError("Number of keys can't be greater than number of args")
		case n < 0:
			return protocol.NewError("Number of keys can't be negative")
		}
	}
	if len(args[row.source]) >= largeSource {
		c.runBatch() // what stands before does not wait for the compiler
	}
	if err := c.srv.compiled.check(args[row.source]); err != nil {
		prefix, text, _ := strings.Cut(err.Error(), " ")
		return &protocol.Error{Prefix: prefix, Text: text}
	}
	return nil
}

// inClusterMode returns why a data command is refused because of the mode that the node is in.
func (s *Server) inClusterMode(row *row, args [][]byte) *protocol.Error {
	slots := row.Group == protocol.GroupCluster
	switch {
	case !s.cfg.Options.ClusterMode && slots:
		return discovery.ErrNoCluster
	case !s.cfg.Options.ClusterMode || slots:
		return nil
	case row.Name == "move" || row.Name == "swapdb":
		return protocol.NewError(strings.ToUpper(row.Name) + " is not allowed in cluster mode")
	case row.Name == "copy" && copiesElsewhere(args):
		return protocol.NewError("Copying to another database is not allowed in cluster mode")
	}
	return nil
}

// copiesElsewhere reports whether a COPY names a database other than 0.
func copiesElsewhere(args [][]byte) bool {
	for i := 3; i+1 < len(args); i++ {
		if strings.EqualFold(string(args[i]), "db") {
			n, ok := protocol.ParseInt(string(args[i+1]))
			return ok && n > 0 && n < protocol.MaxDatabases
		}
	}
	return false
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
