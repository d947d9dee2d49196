package fsm

import (
	"strings"
	"sync"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
)

// The request of a script has the rules of its user, unless the user may do everything. So has the request of any other
// command whose effects go beyond its words (protocol.Reach). All nodes judge these requests by the rules in the
// request, and not by their own files of users. The node that takes a command judges any other command.

// rightsCache has the rights of users whose scripts the node has run recently, by their rules. It is not part of the
// state, since rules have the same meaning on all nodes. It is safe for concurrent use.
type rightsCache struct {
	mu    sync.Mutex
	known map[string]*rights.Rights
	bytes int
}

const (
	// maxCachedRights limits the estimated memory of the cache, in bytes. A full cache is emptied.
	maxCachedRights = 16 << 20
	// rightsBytes is the estimated memory of rights without rules, and bytesPerRuleByte the estimated memory of each byte
	// of the rules.
	rightsBytes      = 1 << 10
	bytesPerRuleByte = 16
)

// of returns the rights of rules. Invalid rules allow nothing.
func (rc *rightsCache) of(rules string) *rights.Rights {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if r := rc.known[rules]; r != nil {
		return r
	}
	r, err := rights.Parse(strings.Clone(rules))
	if err != nil {
		r = new(rights.Rights)
	}
	size := rightsBytes + bytesPerRuleByte*len(rules)
	if rc.bytes += size; rc.known == nil || rc.bytes > maxCachedRights {
		rc.known, rc.bytes = make(map[string]*rights.Rights), size
	}
	rc.known[strings.Clone(rules)] = r
	return r
}

const (
	ruleByteWork = 16   // the work for each byte of rules
	ruleWork     = 1024 // the work for each rule
	rulePairWork = 4    // the work for the comparison of two rules
	judgeWork    = 256  // the work for the judgement of a call
)

const (
	maxRefusals     = 10      // limits the refusals in a reply
	maxRefusalBytes = 1 << 10 // limits the key or channel of a refusal
)

// workOfRules returns the work of parsing rules. It is the same on all nodes, whether or not the rules are cached.
func workOfRules(rules string) int64 {
	n := int64(1)
	for i := range len(rules) {
		if rules[i] <= ' ' {
			n++
		}
	}
	return int64(len(rules))*ruleByteWork + n*ruleWork + n*n*rulePairWork
}

// readRules sets c.reader to the rights of the request, and reports whether the budget sufficed. It charges once.
func (c *call) readRules() bool {
	if c.reader == nil {
		if !c.Pays(workOfRules(c.rules)) {
			return false
		}
		c.reader = c.users.of(c.rules)
	}
	return true
}

// check runs a check of rights within the budget of the request, charges for it, and reports whether the budget
// sufficed.
func (c *call) check(run func(b *rights.Budget)) bool {
	before := max(0, c.Ceiling-c.Work) / command.StepWork
	b := rights.Budget{Steps: before}
	run(&b)
	c.Spend((before - max(0, b.Steps)) * command.StepWork)
	if b.Steps < 0 {
		c.OverBudget = true
	}
	return !c.OverBudget
}

// MayRead implements [command.Host].
func (c *call) MayRead(key string) (may bool) {
	if c.rules == "" {
		return true
	}
	return c.readRules() && c.check(func(b *rights.Budget) { may = c.reader.MayRead(key, b) }) && may
}

// runWithRights runs a script with the rights of its request.
func (c *call) runWithRights(run func(c *call, readOnly bool) protocol.Value, readOnly bool) protocol.Value {
	h := &c.scripts
	h.rights = nil
	if c.rules == "" {
		return run(c, readOnly)
	}
	if !c.readRules() {
		return command.ErrOverWork
	}
	h.rights, h.refusals = c.reader, nil
	return protocol.Judged(run(c, readOnly), h.refusals)
}

// The refusals of a script's calls have the texts of Redis.
var errsOfScripts = [...]protocol.Value{
	rights.DeniedCommand: protocol.Err("The user executing the script can't run this command or subcommand"),
	rights.DeniedKey: protocol.Err(
		"The user executing the script can't access at least one of the keys mentioned in the command arguments"),
	rights.DeniedChannel: protocol.Err(
		"The user executing the script can't publish to the channel mentioned in the command"),
}

// judge returns the reason for which the script's user must not run a command.
func (h *scriptHost) judge(row *protocol.Command, words []string) (refusal protocol.Value, refused bool) {
	var sort string
	denial, at, ok := h.check(row, words, &sort)
	switch {
	case !ok:
		return command.ErrOverWork, true
	case sort != "":
		return protocol.Err(sort), true
	case denial == rights.Allowed:
		return refusal, false
	}
	if len(h.refusals) < maxRefusals {
		object := row.Name
		if denial != rights.DeniedCommand {
			object = strings.Clone(words[at][:min(len(words[at]), maxRefusalBytes)])
		}
		h.refusals = append(h.refusals, protocol.Refusal{Reason: denial.String(), Object: object})
	}
	return errsOfScripts[denial], true
}

// check judges a command and charges for it. ok: the budget sufficed. With sort, it returns there the reason for which
// SORT must not look at other keys.
func (h *scriptHost) check(row *protocol.Command, words []string, sort *string) (denial rights.Denial, at int,
	ok bool,
) {
	c := h.call
	before := max(0, c.Ceiling-c.Work) / command.StepWork
	b := rights.Budget{Steps: before}
	denial, at = rights.Check(h.rights, row, words, &b)
	if denial == rights.Allowed && sort != nil {
		*sort = rights.RefusedSort(h.rights, row, words, &b)
	}
	c.Spend(judgeWork + int64(len(words))*command.KeyWork + (before-max(0, b.Steps))*command.StepWork)
	if b.Steps < 0 {
		c.OverBudget = true
	}
	return denial, at, !c.OverBudget
}
