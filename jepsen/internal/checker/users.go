package checker

import (
	"strings"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Owner is a user, with its own keys and values, and its quota of keys.
type Owner struct {
	Prefix      string // of its keys
	First, Last int64  // of its values
	MaxKeys     int64  // 0 if there is no quota
}

// Rights checks registers of users who may access only their own keys. Each command of another user is refused, for
// lack of rights, and has no effect. Keys have only values of their owners. An owner never has more keys than its
// quota, and is refused for no other reason.
//
//	trespass -> [1] if a command of another user was refused, [0] if it was not
//	count    -> [the number of keys of the owner]
//	read     -> [value], or [] if there is none
//
// The owner performs all of these except trespass.
func Rights(owners ...Owner) Func {
	return func(h *history.History) Result {
		tried := h.Filter(func(o *history.Op) bool { return o.F == "trespass" })
		r := newResult("rights", tried.Count(history.OK))
		for i := range h.Ops {
			o := &h.Ops[i]
			for _, owner := range owners {
				if strings.HasPrefix(o.Key, owner.Prefix) {
					owner.judge(r, o)
				}
			}
		}
		return *r
	}
}

// refusedByRights reports whether an error says that the user has no right.
func refusedByRights(why string) bool {
	return strings.HasPrefix(why, "NOPERM ") || strings.HasPrefix(why, "ERR The user executing the script can't")
}

func (w Owner) judge(r *Result, o *history.Op) {
	overQuota := strings.HasPrefix(o.Error, "QUOTA ")
	switch {
	case o.F == "trespass" && o.Outcome == history.OK && o.Out(0) == 1:
	case o.F == "trespass" && o.Outcome == history.OK:
		r.find("another user's command was not refused: %s", o)
	case o.F == "trespass" && (strings.HasPrefix(o.Error, "ERR ") || refusedByRights(o.Error) || overQuota):
		r.find("another user's command was refused for another reason: %s", o)
	case o.F == "trespass":
	case o.Outcome != history.OK && refusedByRights(o.Error):
		r.find("a command of the owner was refused: %s", o)
	case overQuota && w.MaxKeys == 0:
		r.find("there is no quota: %s", o)
	case overQuota:
		r.Counts["over the quota"]++
	case o.Outcome != history.OK:
	case o.F == "count" && w.MaxKeys > 0:
		r.Counts["most keys"] = max(r.Counts["most keys"], int(o.Out(0)))
		if o.Out(0) > w.MaxKeys {
			r.find("more keys than the quota of %d: %s", w.MaxKeys, o)
		}
	case o.F == "read" && len(o.Output) > 0 && (o.Out(0) < w.First || o.Out(0) > w.Last):
		r.find("a value that the owner did not write: %s", o)
	}
}
