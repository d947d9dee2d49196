package importer

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
)

//go:embed import.lua
var script string

// Replies of import.lua.
const (
	written = 1
	same    = 0
	longer  = 2
	other   = -1
)

// Modes of import.lua.
const (
	modeCopy = "copy"
	modeDry  = "dry"
	modePart = "part"
	modeLife = "life"
)

// giveUp is how long attempts at the target may fail. A failover takes a second.
const giveUp = 30 * time.Second

// pause is the time between two attempts.
const pause = 100 * time.Millisecond

// hopeless are prefixes of errors that every further key would get, too.
var hopeless = []string{"OOM", "NOPERM", "NOAUTH", "READONLY", "MISCONF", "ERR unknown command"}

// target writes to the cluster. It retries commands with an unknown outcome, so all its commands are idempotent.
type target struct {
	servers *operator.Servers
	conn    *operator.Conn // or nil
	sha     string
	loaded  bool // the script is loaded at conn's node
	dry     bool
}

func newTarget(servers *operator.Servers, dry bool) *target {
	sum := sha1.Sum([]byte(script))
	return &target{servers: servers, sha: hex.EncodeToString(sum[:]), dry: dry}
}

func (t *target) close() {
	if t.conn != nil {
		t.conn.Close()
		t.conn = nil
	}
}

// command is one command. Its words may depend on the instant at which it is sent; it has none if it is too late.
type command struct {
	words func(now time.Time) []string
	reply protocol.Value
	done  bool
	late  bool
	again bool // an earlier attempt may have been applied
}

// run runs commands until each has a final answer, which may be an error. err is not one of these.
func (t *target) run(ctx context.Context, commands ...*command) error {
	until := time.Now().Add(giveUp)
	for {
		before := open(commands)
		err := t.try(ctx, commands)
		left := open(commands)
		switch {
		case left == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, new(*operator.Refusal)):
			return err
		case left < before:
			until = time.Now().Add(giveUp)
		case time.Now().After(until):
			return fmt.Errorf("nothing could be written for %v: %w", giveUp, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func open(commands []*command) (n int) {
	for _, c := range commands {
		if !c.done {
			n++
		}
	}
	return n
}

// try sends all commands without an answer, once.
func (t *target) try(ctx context.Context, commands []*command) error {
	if err := t.connect(ctx); err != nil {
		return err
	}
	now := time.Now()
	var sent []*command
	var words [][]string
	for _, c := range commands {
		if c.done {
			continue
		}
		w := c.words(now)
		if w == nil {
			c.done, c.late = true, true
			continue
		}
		sent, words = append(sent, c), append(words, w)
	}
	vs, err := t.conn.Pipeline(ctx, words...)
	if err != nil {
		t.close()
		for _, c := range sent {
			c.again = true
		}
		return err
	}
	for i, v := range vs {
		if v.IsError() && strings.HasPrefix(v.Str, "NOSCRIPT") {
			t.loaded, err = false, errors.New(v.Str)
			continue
		}
		if passing := operator.ErrorOf(v.Str); v.IsError() && !errors.As(passing, new(*operator.Refusal)) {
			sent[i].again = sent[i].again || strings.HasPrefix(v.Str, "UNCERTAIN")
			err = passing
			continue
		}
		sent[i].reply, sent[i].done = v, true
	}
	return err
}

// connect connects to a node that answers, and loads the script there, except in a dry run.
func (t *target) connect(ctx context.Context) (err error) {
	if t.conn == nil {
		t.loaded = false
		if t.conn, err = t.servers.DialAny(ctx, patience); err != nil {
			t.conn = nil
			return err
		}
	}
	if t.loaded || t.dry {
		return nil
	}
	if _, err = t.conn.Do(ctx, "SCRIPT", "LOAD", script); err != nil {
		if !errors.As(err, new(*operator.Refusal)) {
			t.close()
		}
		return err
	}
	t.loaded = true
	return nil
}

// call returns a call of import.lua for an item, with these words of its value.
func (t *target) call(it *item, kind, mode string, offset int, words []string) *command {
	return &command{words: func(now time.Time) []string {
		life := it.life(now)
		if life < 0 {
			return nil
		}
		head := []string{"EVALSHA", t.sha, "1"}
		if t.dry {
			head = []string{"EVAL_RO", script, "1"}
		}
		head = append(head, it.key, kind, strconv.FormatInt(life, 10), mode, strconv.Itoa(offset))
		return append(head, words...)
	}}
}

// fixed returns a command whose words do not depend on the instant.
func fixed(words ...string) *command {
	return &command{words: func(time.Time) []string { return words }}
}

// do runs one command.
func (t *target) do(ctx context.Context, words ...string) (protocol.Value, error) {
	c := fixed(words...)
	if err := t.run(ctx, c); err != nil {
		return protocol.Value{}, err
	}
	return c.reply, fatal(c.reply)
}

// fatal returns the error of a reply if every further command would get it, too. A missing right to one key is not
// fatal.
func fatal(v protocol.Value) error {
	text := strings.TrimPrefix(v.Str, "EXECABORT Transaction discarded because of: ")
	for _, prefix := range hopeless {
		if v.IsError() && strings.HasPrefix(text, prefix) && !strings.Contains(text, "permissions to access") {
			return errors.New(v.Str)
		}
	}
	return nil
}

// refusal returns the error of a reply, or nil.
func refusal(v protocol.Value) error {
	if err := fatal(v); err != nil || !v.IsError() {
		return err
	}
	if strings.HasPrefix(v.Str, "MOVED ") {
		return skipMoved
	}
	return skip("refused: " + v.Str)
}

// RaiseFences makes all later fences of a cluster's native locks larger than above, and returns the largest number that
// no later fence has. It is idempotent.
func RaiseFences(ctx context.Context, to *operator.Servers, above int64) (reached int64, err error) {
	t := newTarget(to, true) // no script is needed
	defer t.close()
	v, err := t.do(ctx, "FENCE.RAISE", strconv.FormatInt(above, 10))
	if err == nil && v.IsError() {
		err = errors.New(v.Str)
	}
	return v.Num, err
}
