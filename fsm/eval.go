package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// errNoScript is matched by libraries to the letter.
var errNoScript = protocol.ErrNoScript.Value()

// maxScriptWork bounds what the commands of one script do beyond what the
// engine counts, in bytes copied. A key looked at by KEYS or SCAN counts as
// keyWork of them, a word of a command as wordWork, a step of a pattern as stepWork:
// about what they take in time.
const (
	maxScriptWork = 256 << 20
	keyWork       = 64
	wordWork      = 128
	stepWork      = 8
)

// spend notes work that grows with more than the number of a command's words.
func (c *call) spend(work int64) { c.work += work }

// scriptHost is a script's way to the keyspace. It implements [lua.Host].
type scriptHost struct {
	call     *call
	runner   *lua.Runner
	env      lua.Env
	journal  journal
	words    []string
	readOnly bool
	// over: the script did more work than it may. From then on every command is
	// refused, and the script counts as one that ran over its budget.
	over bool
	// full: the state may take no more, and the script had written. As over, but with another error.
	full bool
}

func evalOp(c *call) protocol.Value         { return c.eval(false) }
func evalReadOnlyOp(c *call) protocol.Value { return c.eval(true) }

func (c *call) eval(readOnly bool) protocol.Value {
	keys, args, problem := c.scriptWords()
	if problem.IsError() {
		return problem
	}
	source := c.args[1]
	sha := scriptSHA(source)
	s := c.st.scripts.find(sha)
	known := s != nil
	if !known {
		s = compile(source, sha, 0)
	}
	reply, kept := c.runScript(s, keys, args, readOnly)
	// In a read nothing is written, and so nothing cached either.
	if kept && !readOnly {
		c.st.scripts.remember(s, known)
	}
	return reply
}

func evalshaOp(c *call) protocol.Value         { return c.evalsha(false) }
func evalshaReadOnlyOp(c *call) protocol.Value { return c.evalsha(true) }

func (c *call) evalsha(readOnly bool) protocol.Value {
	sha := c.args[1]
	if len(sha) != 40 {
		return errNoScript
	}
	keys, args, problem := c.scriptWords()
	if problem.IsError() {
		return problem
	}
	s := c.st.scripts.find(strings.ToLower(sha))
	if s == nil {
		return errNoScript
	}
	reply, kept := c.runScript(s, keys, args, readOnly)
	if kept && !readOnly {
		c.st.scripts.remember(s, true)
	}
	return reply
}

// scriptWords cuts KEYS and ARGV out of the words of EVAL.
func (c *call) scriptWords() (keys, args []string, problem protocol.Value) {
	n, ok := protocol.ParseInt(c.args[2])
	words := c.args[3:]
	switch {
	case !ok:
		return nil, nil, errNotInteger
	case n > int64(len(words)):
		return nil, nil, protocol.Err("Number of keys can't be greater than number of args")
	case n < 0:
		return nil, nil, protocol.Err("Number of keys can't be negative")
	}
	return words[:n], words[n:], problem
}

// runScript runs s. If it overruns a budget, what it wrote is undone, and kept is false.
func (c *call) runScript(s *script, keys, args []string, readOnly bool) (reply protocol.Value, kept bool) {
	if s.program == nil {
		return s.problem, false
	}
	noWrites := s.program.Flags()&lua.FlagNoWrites != 0
	if readOnly && s.program.HasShebang() && !noWrites {
		return protocol.Err("Can not execute a script with write flag using *_ro command."), false
	}
	h := &c.scripts
	h.call, h.over, h.full, h.readOnly = c, false, false, readOnly || noWrites
	if !h.readOnly && s.program.HasShebang() && s.program.Flags()&lua.FlagAllowOOM == 0 && c.full() {
		return errOOM, false
	}
	if h.runner == nil {
		h.runner = lua.NewRunner()
	}
	db, words := c.db, c.args
	c.work = 0
	if !h.readOnly {
		h.journal.start(c.st)
		c.undo = &h.journal
	}
	h.env = lua.Env{Keys: keys, Args: args, Host: h, SHA: s.sha, Seed: c.scriptSeed(readOnly), Legacy: c.chargesAsBefore()}
	reply, err := h.runner.Run(s.program, &h.env)
	c.undo = nil
	c.db, c.args = db, words
	if h.full {
		reply, err = errOOM, lua.ErrBudget
	}
	if err == nil && h.over {
		reply, err = errOverWork, lua.ErrBudget
	}
	if err != nil {
		if !h.readOnly {
			h.journal.rollBack(c.st)
		}
		if !reply.IsError() {
			reply = errQuoting(err.Error())
		}
		return reply, false
	}
	return reply, true
}

// versionCharges is the first version of the entry whose scripts are charged as today: see
// [lua.Env].
const versionCharges = 3

func (c *call) chargesAsBefore() bool { return !c.reading && c.entryVersion < versionCharges }

var (
	errOverWork  = protocol.Err("script is over its budget of work in commands")
	errForbidden = protocol.ErrNotInScript.Value()
	errReadOnly  = protocol.ErrReadOnlyScript.Value()
	errUnknown   = protocol.Err("Unknown Redis command called from script")
	errArgCount  = protocol.Err("Wrong number of args calling Redis command from script")
)

// Call runs a command for a script: by the same table as for clients.
func (h *scriptHost) Call(words []string, _ int) protocol.Value {
	c := h.call
	row, _ := protocol.Find(words)
	switch {
	case row == nil:
		return errUnknown
	case !row.CheckArity(len(words)):
		return errArgCount
	case row.Flags&protocol.FlagNoScript != 0:
		return errForbidden
	}
	b := c.lookup(row.Name)
	switch {
	case b == nil:
		return errForbidden
	case h.readOnly && b.writes:
		return errReadOnly
	case h.over:
		return errOverWork
	case h.full, b.grows && c.full():
		h.full = h.full || h.journal.wrote(c.st)
		return errOOM
	}
	for _, word := range words {
		c.spend(wordWork + int64(len(word)))
	}
	h.words = append(h.words[:0], row.Name)
	h.words = append(h.words, words[1+b.subcommand:]...)
	c.args = h.words
	reply := b.run(c)
	if c.work > maxScriptWork {
		h.over = true
		return errOverWork
	}
	return reply
}

// CheckACL allows everything that is a command: there are no other users yet.
func (h *scriptHost) CheckACL(words []string) (allowed bool, errText string) {
	if row, _ := protocol.Find(words); row == nil {
		return false, "ERR Invalid command passed to redis.acl_check_cmd()"
	}
	return true, ""
}

// Log drops what a script logs: it runs on every replica, and again when a log
// is read again after a start, so that no line of it would be the one line.
func (h *scriptHost) Log(int, string) {}
