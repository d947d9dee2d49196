package workload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// user is a user of the workload, with its own key prefix and range of values.
type user struct {
	name, password string
	checker.Owner
}

var (
	alice = &user{"alice", "alice-secret", checker.Owner{Prefix: "users:a:", First: 100, Last: 104}}
	bob   = &user{"bob", "bob-secret", checker.Owner{Prefix: "users:b:", First: 200, Last: 204, MaxKeys: 3}}
)

// other returns the user whose keys u must not touch.
func (u *user) other() *user {
	if u == alice {
		return bob
	}
	return alice
}

// WriteUsers writes the files of users and quotas to a folder. With open, clients need no password.
func WriteUsers(dir string, open bool) (aclFile, quotaFile string, err error) {
	var rules, quotas strings.Builder
	if open {
		rules.WriteString("user default on nopass ~* &* +@all\n")
	}
	for _, u := range []*user{alice, bob} {
		fmt.Fprintf(&rules, "user %s on >%s ~%s* +@all -@admin -@dangerous\n", u.name, u.password, u.Prefix)
		if u.MaxKeys > 0 {
			fmt.Fprintf(&quotas, "user %s max-keys %d\n", u.name, u.MaxKeys)
		}
	}
	aclFile, quotaFile = filepath.Join(dir, "users.acl"), filepath.Join(dir, "users.quota")
	if err = os.WriteFile(aclFile, []byte(rules.String()), 0o600); err == nil {
		err = os.WriteFile(quotaFile, []byte(quotas.String()), 0o600)
	}
	return aclFile, quotaFile, err
}

var (
	// These scripts touch undeclared keys.
	setUndeclared  = newLua(`return redis.call("set", ARGV[1], ARGV[2])`)
	trySetting     = newLua(`return redis.pcall("set", ARGV[1], ARGV[2])`)
	readUndeclared = newLua(`return redis.call("get", ARGV[1])`)

	setDeclared = newLua(`return redis.call("set", KEYS[1], ARGV[1])`)
)

// users has registers of two users, one of them with a quota, who also try each other's keys. A client is one of them,
// and sometimes changes to the other.
type users struct {
	*register
	keys map[*user]*Rotation
}

// userSlots is the number of keys that a user writes concurrently: more than the quota.
const userSlots = 5

func newUsers(o *Options) Workload {
	w := &users{&register{o: o}, map[*user]*Rotation{}}
	for _, u := range []*user{alice, bob} {
		w.keys[u] = NewRotation(strings.TrimSuffix(u.Prefix, ":"), userSlots, 150, 6)
	}
	return w
}

func (w *users) Checkers() []checker.Func {
	return append(registerChecker("linearizable"), checker.Rights(alice.Owner, bob.Owner))
}

func (w *users) Step(ctx context.Context, c *Client) {
	switch {
	case c.user == nil:
		c.user = []*user{alice, bob}[c.worker%2]
	case c.chance(0.03):
		c.become(c.user.other())
	}
	c.hop()
	switch p := c.rng.Float64(); {
	case p < 0.3:
		w.trespass(ctx, c)
	case p < 0.4:
		w.count(ctx, c)
	default:
		w.use(ctx, c)
	}
}

// use reads or changes a key of the client's user.
func (w *users) use(ctx context.Context, c *Client) {
	keys := w.keys[c.user]
	n, key := keys.Pick(c.rng)
	value := func() int64 { return c.user.First + c.rng.Int64N(registerValues) }
	var r result
	switch p := c.rng.Float64(); {
	case p < 0.35:
		r = w.read(ctx, c, key)
	case p < 0.5:
		// A former key counts toward the quota until it is deleted.
		if all := keys.All(); c.chance(0.5) {
			key = all[c.rng.IntN(len(all))]
		}
		r = c.op(ctx, history.Op{F: "write", Key: key, Input: []int64{checker.Missing}}, func(x exchange) result {
			if r := onInteger(x.do("DEL", key)); r.outcome != history.OK {
				return r
			}
			return ok()
		})
	case p < 0.85:
		v := value()
		r = c.op(ctx, history.Op{F: "write", Key: key, Input: []int64{v}}, w.write(c, key, decimal(v)))
	default:
		from, to := value(), value()
		r = c.op(ctx, history.Op{F: "cas", Key: key, Input: []int64{from, to}}, w.cas(c, key, decimal(from), decimal(to)))
	}
	if r.outcome == history.Info {
		keys.Unknown(n)
	}
}

// write returns one of several ways to set a key. None has another effect.
func (w *users) write(c *Client, key, value string) func(exchange) result {
	kind := c.rng.IntN(4)
	return func(x exchange) result {
		var r wire.Reply
		switch kind {
		case 0:
			r = x.eval(setUndeclared, thenEval, nil, key, value)
		case 1:
			r = inTransaction(x, "SET", key, value)
		default:
			r = x.do("SET", key, value)
		}
		if strings.HasPrefix(r.Why, "QUOTA ") { // of a script that has changed nothing
			return failed(r.Why)
		}
		return onOK(r)
	}
}

// inTransaction returns the reply of a command in MULTI and EXEC.
func inTransaction(x exchange, words ...string) wire.Reply {
	exec := x.conn.Pipeline([][]string{{"MULTI"}, words, {"EXEC"}})[2]
	switch {
	case exec.Outcome == history.OK && exec.Value.IsNull():
		return wire.Reply{Outcome: history.Fail, Why: "conflict"} // with an earlier WATCH
	case exec.Outcome != history.OK || len(exec.Value.Elems) != 1:
		return exec
	}
	exec.Value = exec.Value.Elems[0]
	if exec.Value.IsError() {
		return wire.Reply{Outcome: history.Fail, Why: exec.Value.Str}
	}
	return exec
}

// count counts the keys of the client's user, among all that existed.
func (w *users) count(ctx context.Context, c *Client) {
	if all := w.keys[c.user].All(); len(all) > 0 {
		c.op(ctx, history.Op{F: "count", Key: c.user.Prefix + "*"}, func(x exchange) result {
			return onInteger(x.do(append([]string{"EXISTS"}, all...)...))
		})
	}
}

// The prefixes of refusals.
const (
	noPermission = "NOPERM this user has no permissions to access one of the keys used as arguments"
	noKeyOfUser  = "ERR The user executing the script can't access at least one of the keys mentioned in the command " +
		"arguments"
)

// trespasses are ways to touch a key of the other user. Values that they write belong to the client's user.
var trespasses = []struct {
	refusal string
	try     func(x exchange, own, key, value string) wire.Reply
}{
	{noPermission, func(x exchange, _, key, value string) wire.Reply { return x.do("SET", key, value) }},
	{noPermission, func(x exchange, _, key, _ string) wire.Reply { return x.do("GET", key) }},
	{noPermission, func(x exchange, own, key, value string) wire.Reply { return x.do("MSET", own, value, key, value) }},
	{noPermission, func(x exchange, own, key, _ string) wire.Reply { return x.do("RENAME", own, key) }},
	{noPermission, func(x exchange, _, key, value string) wire.Reply {
		return x.eval(setDeclared, thenEval, []string{key}, value)
	}},
	{"EXECABORT ", func(x exchange, own, key, value string) wire.Reply {
		replies := x.conn.Pipeline([][]string{{"MULTI"}, {"SET", own, value}, {"SET", key, value}, {"EXEC"}})
		if r := replies[2]; r.Outcome == history.Fail && !strings.HasPrefix(r.Why, noPermission) {
			return r
		}
		return replies[3]
	}},
	{noKeyOfUser, func(x exchange, _, key, value string) wire.Reply {
		return x.eval(setUndeclared, thenEval, nil, key, value)
	}},
	{noKeyOfUser, func(x exchange, _, key, value string) wire.Reply {
		return x.eval(trySetting, thenLoad, nil, key, value)
	}},
	{noKeyOfUser, func(x exchange, _, key, _ string) wire.Reply {
		return x.do("EVAL_RO", readUndeclared.source, "0", key)
	}},
	{noKeyOfUser, func(x exchange, _, key, value string) wire.Reply {
		return inTransaction(x, "EVAL", setUndeclared.source, "0", key, value)
	}},
}

// trespass tries a key of the other user. Its value is one that no user writes to its own keys, so that an effect there
// would show.
func (w *users) trespass(ctx context.Context, c *Client) {
	kind := c.rng.IntN(len(trespasses))
	_, own := w.keys[c.user].Pick(c.rng)
	_, key := w.keys[c.user.other()].Pick(c.rng)
	value := c.user.Last + 1
	c.op(ctx, history.Op{F: "trespass", Key: key, Input: []int64{int64(kind), value}}, func(x exchange) result {
		t := trespasses[kind]
		switch r := t.try(x, own, key, decimal(value)); {
		case strings.HasPrefix(r.Why, t.refusal):
			return ok(1)
		case r.Outcome == history.OK:
			return ok(0)
		default:
			return not(r)
		}
	})
}

func (w *users) Final(ctx context.Context, c *Client) {
	for _, u := range []*user{alice, bob} {
		c.become(u)
		readAll(ctx, c, w.keys[u], w.read)
		w.count(ctx, c)
	}
}
