package frontend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/metrics"
)

// request is a command of a client on its way. Each station of the way gets the pipeline's record: see dispatch.go.
// args are slices of the input buffer, so a request that outlives dispatch is a clone.
type request struct {
	*row
	// args are the command's words, its name first.
	args [][]byte
	// db is the database of the command.
	db int
	// keyAt has the positions of the keys, once resolved is set.
	keyAt    []int
	resolved bool
	room     [4]int // the memory of keyAt
	measures
}

// measures has the sizes of a command's words.
type measures struct {
	measured bool
	bytes    int  // of all words
	longest  int  // of the words after the name, in bytes
	optioned bool // the option FromConnWith of the row follows a key and a value
}

// begin resets the record for another command.
func (req *request) begin(row *row, args [][]byte, db int) {
	req.row, req.args, req.db, req.resolved, req.measured = row, args, db, false, false
}

// measure returns the sizes of the words. It computes them once.
func (req *request) measure() *measures {
	m := &req.measures
	if m.measured {
		return m
	}
	bytes, longest, optioned, names, option := 0, 0, false, req.nameArgs, req.FromConnWith
	for i, arg := range req.args {
		bytes += len(arg)
		if i >= names {
			longest = max(longest, len(arg))
		}
		if i > 2 && len(arg) == len(option) && strings.EqualFold(string(arg), option) {
			optioned = true
		}
	}
	*m = measures{true, bytes, longest, optioned}
	return m
}

// clone returns a copy of the request that shares no memory with it.
func (req *request) clone() *request {
	args := make([][]byte, len(req.args))
	for i, arg := range req.args {
		args[i] = bytes.Clone(arg)
	}
	return &request{row: req.row, args: args, db: req.db}
}

// keys returns the positions of the keys, or nil if they cannot be found. The state machine then refuses the command.
func (req *request) keys() []int {
	if !req.resolved {
		req.keyAt, _ = req.KeyPositionsIn(req.room[:0], req.args)
		req.resolved = true
	}
	return req.keyAt
}

// size returns the memory of the words, with more bytes for each.
func (req *request) size(more int) int { return req.measure().bytes + len(req.args)*more }

// encodedBytes returns an upper bound of the request's size in a batch.
func (req *request) encodedBytes() int { return req.size(binary.MaxVarintLen32) }

// tooLong returns why an argument is too long, or nil. It looks up the keys only if an argument exceeds the smaller
// limit.
func (req *request) tooLong(l *Limits) *protocol.Error {
	if req.measure().longest <= min(l.MaxKeyBytes, l.MaxValueBytes) {
		return nil
	}
	for i, arg := range req.args {
		if len(arg) > l.MaxKeyBytes && slices.Contains(req.keys(), i) {
			return protocol.NewError(fmt.Sprintf("key exceeds maximum allowed size (%d bytes)", l.MaxKeyBytes))
		}
		if len(arg) > l.MaxValueBytes {
			return protocol.ErrStringTooBig
		}
	}
	return nil
}

// badKeyCount returns why EVAL's number of keys is wrong, or nil.
func (req *request) badKeyCount() *protocol.Error {
	n, ok := protocol.ParseInt(string(req.args[2]))
	switch {
	case !ok:
		return protocol.ErrNotInteger
	case n > int64(len(req.args)-3):
		return protocol.NewError("Number of keys can't be greater than number of args")
	case n < 0:
		return protocol.NewError("Number of keys can't be negative")
	}
	return nil
}

// copiesElsewhere reports whether a COPY names a database other than 0.
func (req *request) copiesElsewhere() bool {
	for i := 3; i+1 < len(req.args); i++ {
		if strings.EqualFold(string(req.args[i]), "db") {
			n, ok := protocol.ParseInt(string(req.args[i+1]))
			return ok && n > 0 && n < protocol.MaxDatabases
		}
	}
	return false
}

// fromConn reports whether the log entry of the command has the number of the connection.
func (req *request) fromConn() bool {
	return req.FromConn && (req.FromConnWith == "" || req.measure().optioned)
}

// hints returns the hints for the scheduling of a batch that has this request only. If the command must not wait,
// ticket is 0.
func (req *request) hints(ticket uint64) protocol.Hints {
	switch {
	case req.creates && req.fromConn():
		return protocol.CreateIfAbsent
	case ticket != 0, req.handler.acquires:
		return protocol.MayWait
	case req.source != 0 && len(req.args[req.source]) >= fsm.LargeSource:
		return protocol.LargeScript
	}
	return 0
}

// owner returns the position of the owner in a request for locks, which follows the keys, or 0.
func (req *request) owner() int {
	keys := req.keys()
	if len(keys) == 0 || keys[len(keys)-1]+1 >= len(req.args) {
		return 0
	}
	return keys[len(keys)-1] + 1
}

// waits reports whether a request for locks may wait, and whether it waits without parking the connection.
func (req *request) waits() (waits, notify bool) {
	if !req.handler.acquires || req.owner() == 0 {
		return false, false
	}
	req.eachOption(func(_ int, token string, _ []byte) {
		waits = waits || token == "WAIT"
		notify = notify || token == "NOTIFY"
	})
	return waits, waits && notify
}

// takeHeartbeat removes HEARTBEAT from a command that attaches a session to the connection, and reports whether it was
// there. Only this node needs the option. In any other command the state machine refuses it.
func (req *request) takeHeartbeat() (demanded bool) {
	var at []int
	lives := req.Name == "session.attach"
	switch {
	case lives:
		req.eachOption(func(i int, _ string, _ []byte) { at = append(at, i) })
	case req.Name == "session.open":
		req.eachOption(func(i int, token string, _ []byte) {
			lives = lives || token == "CONNECTION"
			if token == "HEARTBEAT" {
				at = append(at, i)
			}
		})
	}
	if !lives || at == nil {
		return false
	}
	var rest [][]byte
	for i, arg := range req.args {
		if !slices.Contains(at, i) {
			rest = append(rest, arg)
		}
	}
	req.begin(req.row, rest, req.db)
	return true
}

// eachOption calls visit with the options of a command: see [protocol.EachOption]. value is the first word of the
// option, if it has any.
func (req *request) eachOption(visit func(at int, token string, value []byte)) {
	protocol.EachOption(req.Command, req.args[req.nameArgs:], func(at int, option *protocol.Arg, values [][]byte) bool {
		var value []byte
		if len(values) > 0 {
			value = values[0]
		}
		visit(req.nameArgs+at, option.Token, value)
		return true
	})
}

// handler implements a command in this package. It has either reply or run, or neither if the state machine implements
// the command.
type handler struct {
	// reply returns the reply.
	reply func(c *conn, args [][]byte) protocol.Value
	// run places the reply itself, at once or after the batch has run.
	run func(c *conn, req *request)
	// inMulti is set if the command runs inside MULTI instead of being queued.
	inMulti bool
	// barrier is set if the command waits until all earlier commands of the pipeline have run.
	barrier bool
	// lock prepares a lock command: see lock_commands.go.
	lock func(c *conn, req *request) *lockCommand
	// fill adds to the reply of the state machine what this node knows. It is not called in a transaction.
	fill func(c *conn, db int, key string, v protocol.Value) protocol.Value
	// acquires is set if the command requests locks.
	acquires bool
	// queued is set if MULTI queues the command, though it has no reply. EXEC then calls run.
	queued bool
}

// row is a row of the command table with what dispatch needs.
type row struct {
	*protocol.Command
	handler handler
	// nameArgs is the number of arguments that make the name: 2 for a subcommand.
	nameArgs int
	// source is the position of the Lua source among the arguments, or 0.
	source int
	// write is set if the command goes through the log, blocks if it may wait for a key, and lock if the state machine
	// needs the connection of its client.
	write, blocks, lock bool
	// newest is the least version of the cluster that has the command and all its options.
	newest byte
	// creates is set for SETNX, and for SET, which creates a key with the option FromConnWith.
	creates bool

	stats metrics.Command
}

// lockCommand says what this node does with the reply of a lock command.
type lockCommand struct {
	// then is called with the reply.
	then func(c *conn, v protocol.Value)
	// keeps is set if the command may attach a session to the connection.
	keeps bool
}

// mayWrite reports whether a command may change the state.
func (r *row) mayWrite() bool {
	return (r.Route == protocol.Write || r.Route == protocol.Script) && !r.Has(protocol.FlagReadOnly)
}

const (
	errClientName = "Client names cannot contain spaces, newlines or special characters."
	errSyntax     = "syntax error"
)
