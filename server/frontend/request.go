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

// request is a command of a client on its way. Dispatch fills the pipeline's record, and every station of the way takes
// it: see dispatch.go. args are slices of the input buffer, so what outlives dispatch takes a clone.
type request struct {
	*row
	// args are the command's words, its name first.
	args [][]byte
	// db is the database at which the command runs.
	db int
	// keyAt is where the keys stand, once resolved.
	keyAt    []int
	resolved bool
	room     [4]int // for keyAt
	measures
}

// measures are what one look at a command's words tells.
type measures struct {
	measured bool
	bytes    int  // of all words
	longest  int  // of the words behind the name, in bytes
	optioned bool // the option FromConnWith of the row is behind a key and a value
}

// begin fills the record with another command.
func (req *request) begin(row *row, args [][]byte, db int) {
	req.row, req.args, req.db, req.resolved, req.measured = row, args, db, false, false
}

// measure looks at the words, once.
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

// clone is the request in memory of its own.
func (req *request) clone() *request {
	args := make([][]byte, len(req.args))
	for i, arg := range req.args {
		args[i] = bytes.Clone(arg)
	}
	return &request{row: req.row, args: args, db: req.db}
}

// keys is where the keys stand. It is nil if they cannot be found: the state machine refuses the command.
func (req *request) keys() []int {
	if !req.resolved {
		req.keyAt, _ = req.KeyPositionsIn(req.room[:0], req.args)
		req.resolved = true
	}
	return req.keyAt
}

// size is the memory of the words, with more for each.
func (req *request) size(more int) int { return req.measure().bytes + len(req.args)*more }

// encodedBytes bounds the size of the request in a batch.
func (req *request) encodedBytes() int { return req.size(binary.MaxVarintLen32) }

// tooLong is why arguments are too long; nil: none is. Only an argument longer than the smaller limit has the keys
// looked up.
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

// badKeyCount is why EVAL's number of keys is wrong; nil: it is right.
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

// fromConn reports whether the command is one whose log entry names the connection.
func (req *request) fromConn() bool {
	return req.FromConn && (req.FromConnWith == "" || req.measure().optioned)
}

// hints are what the request makes known to those that schedule a batch of this request alone. ticket: 0 if the command
// must not wait.
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

// owner is where the owner of a request for locks stands, behind the keys; 0: the request has none.
func (req *request) owner() int {
	keys := req.keys()
	if len(keys) == 0 || keys[len(keys)-1]+1 >= len(req.args) {
		return 0
	}
	return keys[len(keys)-1] + 1
}

// waits reports whether a request for locks may wait, and whether without parking the connection.
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

// takeHeartbeat takes HEARTBEAT out of the arguments for a session that lives with the connection, and reports whether
// it was there: this node alone needs to know. Elsewhere the state machine refuses the word.
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

// eachOption calls visit with the options among a command's arguments: see [protocol.EachOption]. value is the first
// word that belongs to the option, if there is any.
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

// handler is the behaviour of a command that this package implements. Either reply or run is set, or native
// for a command that the state machine implements.
type handler struct {
	// reply makes the reply.
	reply func(c *conn, args [][]byte) protocol.Value
	// run places the reply itself, at once or when the batch has been executed.
	run func(c *conn, req *request)
	// inMulti commands run inside MULTI instead of being queued.
	inMulti bool
	// barrier commands wait until all commands before them in the pipeline have been executed.
	barrier bool
	// lock looks at a lock command before it goes to the cluster: see lock_commands.go.
	lock func(c *conn, req *request) *lockCommand
	// fill adds to the state machine's reply what this node knows. Not in a transaction.
	fill func(c *conn, db int, key string, v protocol.Value) protocol.Value
	// acquires: a command that may wait in line.
	acquires bool
	// queued: inside MULTI a run is queued as a reply is, and places its replies when EXEC runs it.
	queued bool
}

// row is a row of the command table with what dispatch needs.
type row struct {
	*protocol.Command
	handler handler
	// nameArgs is the number of arguments that make the name: 2 for a subcommand.
	nameArgs int
	// source is the position of the Lua source among the arguments; 0: none.
	source int
	// write: the command goes through the log. blocks: it waits if it cannot be served. lock: the state
	// machine must know which connection sends the command.
	write, blocks, lock bool
	// newest is the first version of the log that has the command and all its options.
	newest byte
	// creates: SETNX, or SET, which does the same with the option FromConnWith.
	creates bool

	stats metrics.Command
}

// lockCommand is what this node does about a lock command.
type lockCommand struct {
	// then is called with the reply.
	then func(c *conn, v protocol.Value)
	// keeps: a session may come to live with the connection.
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
