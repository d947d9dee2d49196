package fsm

import (
	"errors"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
)

// errNoScript has the text that libraries compare with.
var errNoScript = protocol.ErrNoScript.Value()

// DefaultScriptSteps bounds a script if its entry has no limit, and MaxScriptSteps is the largest limit.
const (
	DefaultScriptSteps = lua.DefaultSteps
	MaxScriptSteps     = 1_000_000_000
)

// limitScripts bounds the scripts of an entry, in steps of the engine. The commands of a script may cost as much work
// as its steps.
func (c *call) limitScripts(steps uint64) {
	if steps == 0 {
		steps = DefaultScriptSteps
	}
	c.scriptSteps = int64(min(steps, MaxScriptSteps))
}

func evalOp(c *call) protocol.Value         { return c.runWithRights((*call).eval, false) }
func evalReadOnlyOp(c *call) protocol.Value { return c.runWithRights((*call).eval, true) }

func (c *call) eval(readOnly bool) protocol.Value {
	keys, args, problem := c.scriptWords()
	if problem.IsError() {
		return problem
	}
	source := c.Args[1]
	if !c.Pays(int64(len(source)) * hashWork) {
		return command.ErrOverWork
	}
	sha := scriptSHA(source)
	s := c.st.scripts.find(sha)
	known := s != nil
	if !known {
		if s = c.compile(source, sha); s == nil {
			return command.ErrOverWork
		}
	}
	reply, kept := c.runScript(s, keys, args, readOnly)
	// A read caches nothing.
	if kept && !readOnly {
		c.remember(s, known)
	}
	return reply
}

func evalshaOp(c *call) protocol.Value         { return c.runWithRights((*call).evalsha, false) }
func evalshaReadOnlyOp(c *call) protocol.Value { return c.runWithRights((*call).evalsha, true) }

func (c *call) evalsha(readOnly bool) protocol.Value {
	sha := c.Args[1]
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
		c.remember(s, true)
	}
	return reply
}

// compile returns the script of a source, or nil if the budget is too small.
func (c *call) compile(source, sha string) *script {
	if !c.Pays(int64(len(source)) * compileWork) {
		return nil
	}
	program, err := c.programs.Compile(source)
	if err != nil {
		return newScript(strings.Clone(source), sha, 0, nil, err)
	}
	return newScript(program.Source(), sha, 0, program, nil)
}

// remember records a run of s, and caches s if it is new.
func (c *call) remember(s *script, known bool) {
	if known && !c.st.scripts.needsRecord(s) {
		return
	}
	c.noteScripts()
	for c.st.scripts.remember(s); c.isOverEvalShare(); {
		c.st.scripts.forgetOldest()
	}
}

// scriptWords returns KEYS and ARGV of EVAL.
func (c *call) scriptWords() (keys, args []string, problem protocol.Value) {
	n, ok := protocol.ParseInt(c.Args[2])
	words := c.Args[3:]
	switch {
	case !ok:
		return nil, nil, command.ErrNotInteger
	case n > int64(len(words)):
		return nil, nil, protocol.Err("Number of keys can't be greater than number of args")
	case n < 0:
		return nil, nil, protocol.Err("Number of keys can't be negative")
	}
	return words[:n], words[n:], problem
}

// runScript runs s. If s exceeds a budget, its changes are undone and kept is false.
func (c *call) runScript(s *script, keys, args []string, readOnly bool) (reply protocol.Value, kept bool) {
	if s.program == nil {
		return s.problem, false
	}
	noWrites := s.program.Flags()&lua.FlagNoWrites != 0
	if readOnly && s.program.HasShebang() && !noWrites {
		return protocol.Err("Can not execute a script with write flag using *_ro command."), false
	}
	h := &c.scripts
	h.call, h.full, h.declaredNoted, h.readOnly = c, false, false, readOnly || noWrites
	if !h.readOnly && s.program.HasShebang() && s.program.Flags()&lua.FlagAllowOOM == 0 {
		if cause := c.Full(); cause != nil {
			return cause.Value(), false
		}
	}
	if h.runner == nil {
		h.runner = lua.NewRunner()
	}
	db, words, before := c.DB, c.Args, c.Work
	if !h.readOnly {
		h.from = c.beginSavepoint()
	}
	h.env = lua.Env{Keys: keys, Args: args, Host: h, SHA: s.sha, Seed: c.scriptSeed(readOnly)}
	steps := c.scriptSteps
	h.env.Limits = lua.LimitsOf(steps)
	h.env.Limits.Steps = max(1, min(steps, (c.Ceiling-c.Work)/luaStepWork))
	outer := c.Narrow(steps * luaStepWork)
	c.BeginScript(&h.Script)
	reply, err := h.runner.Run(s.program, &h.env)
	c.Script = nil
	c.DB, c.Args = db, words
	c.Spend(h.runner.Used().Steps * luaStepWork)
	own := c.Widen(outer)
	if !c.Reading {
		c.costs.note(s.sha, c.Work-before, sizeOf(keys, args))
	}
	if h.full {
		reply, err = c.refusal, lua.ErrBudget
	}
	if err == nil && (own || c.OverBudget) {
		reply, err = command.ErrOverWork, lua.ErrBudget
	}
	if h.env.Limits.Steps < steps && outOfSteps(err) {
		c.OverBudget = true
	}
	if err != nil {
		if !h.readOnly {
			c.undoTo(&h.from)
		}
		if !reply.IsError() {
			reply = command.ErrQuoting(err.Error())
		}
		return reply, false
	}
	if !h.readOnly {
		c.watchScript(s, h, c.wroteSince(&h.from))
		c.releaseSavepoint(&h.from)
	}
	return reply, true
}

func outOfSteps(err error) bool {
	var over *lua.BudgetError
	return errors.As(err, &over) && over.Resource == lua.Steps
}

var (
	errForbidden = protocol.ErrNotInScript.Value()
	errReadOnly  = protocol.ErrReadOnlyScript.Value()
	errUnknown   = protocol.Err("Unknown Redis command called from script")
	errArgCount  = protocol.Err("Wrong number of args calling Redis command from script")
)

// Call runs a command for a script, by the command table of clients.
func (h *scriptHost) Call(words []string, _ int) protocol.Value {
	c := h.call
	row, b := c.find(words)
	switch {
	case row == nil || !c.hasCommand(row):
		return errUnknown
	case !row.CheckArity(len(words)):
		return errArgCount
	case row.Flags&protocol.FlagNoScript != 0, b == nil:
		return errForbidden
	}
	if h.rights != nil && !c.OverBudget {
		if refusal, refused := h.judge(row, words); refused {
			return refusal
		}
	}
	switch {
	case h.readOnly && b.writes:
		return errReadOnly
	case c.OverBudget:
		return command.ErrOverWork
	case h.full, c.refuses(b, words):
		h.full = h.full || c.wroteSince(&h.from)
		return c.refusal
	}
	for _, word := range words {
		c.Spend(wordWork + int64(len(word)))
	}
	h.noteReads(row, words)
	h.words = append(h.words[:0], row.Name)
	h.words = append(h.words, words[1+b.subcommand:]...)
	c.Args = h.words
	c.Counting = b.counts && !c.Quiet
	reply := b.do(c)
	c.called(words)
	if !c.Fits(0) || c.OverBudget {
		return command.ErrOverWork
	}
	return reply
}

// find returns the row of a command line, and its binding if there is one.
func (c *call) find(words []string) (*protocol.Command, *binding) {
	row, _ := protocol.Find(words)
	if row == nil {
		return nil, nil
	}
	return row, c.byRow[row.Number()]
}

// CheckACL reports whether the user may run a command.
func (h *scriptHost) CheckACL(words []string) (allowed bool, errText string) {
	row, _ := h.call.find(words)
	switch {
	case row == nil || !h.call.hasCommand(row):
		return false, "ERR Invalid command passed to redis.acl_check_cmd()"
	case h.rights == nil:
		return true, ""
	}
	denial, _, ok := h.check(row, words, nil)
	return ok && denial == rights.Allowed, ""
}

// Log drops the line. A script runs on every node, and again when a node replays its log, so a line
// would appear many times.
func (h *scriptHost) Log(int, string) {}

// loadScript is SCRIPT LOAD.
func (c *call) loadScript(source string) protocol.Value {
	sc, sha := &c.st.scripts, scriptSHA(source)
	old := sc.find(sha)
	if old != nil && old.turn == 0 {
		return protocol.Bulk(old.sha)
	}
	if c.refusesLoad(source) {
		return protocol.ErrOOM.Value()
	}
	var s *script
	if old != nil {
		s = old.withTurn(0)
	} else if s = c.compile(source, sha); s == nil {
		return command.ErrOverWork
	} else if s.program == nil {
		return s.problem
	}
	if sc.loaded() >= maxLoaded || sc.loadedBytes+len(source) > maxLoadedBytes {
		return protocol.Err("script cache is full: SCRIPT FLUSH empties it")
	}
	c.noteScripts()
	sc.add(s)
	return protocol.Bulk(s.sha)
}

func scriptLoadOp(c *call) protocol.Value { return c.loadScript(c.Args[1]) }

func scriptExistsOp(c *call) protocol.Value {
	elems := make([]protocol.Value, len(c.Args)-1)
	for i, sha := range c.Args[1:] {
		elems[i] = command.Boolean(c.st.scripts.find(strings.ToLower(sha)) != nil)
	}
	return protocol.Array(elems...)
}

func scriptFlushOp(c *call) protocol.Value {
	if !flushMode(c.Args[1:]) {
		return protocol.Err("SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	c.noteScripts()
	turns := c.st.scripts.turns
	c.st.scripts = newScriptCache()
	c.st.scripts.turns = turns
	return protocol.OK
}

// scriptSeed returns the seed of math.random for a script. Each script has another one, since scripts make tokens with
// random numbers, and all nodes have the same.
//
// The name of a script in an entry is its batch, which is applied once, and its place among the scripts of the batch.
// Scripts that only read have places of their own, since a node skips them if no client waits.
func (c *call) scriptSeed(readOnly bool) uint64 {
	now, versions := uint64(c.NowMillis), c.st.Versions
	if c.Reading {
		return command.HashNumbers(now, versions, c.Seed) | 1
	}
	kind := 0
	if readOnly {
		kind = 1
	}
	c.scripted[kind]++
	node := xxh3.HashString(c.origin.Node)
	return command.HashNumbers(now, versions, node, c.origin.Epoch, c.seq, uint64(kind), c.scripted[kind]) | 1
}
