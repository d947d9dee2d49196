package workload

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// script is a Lua script with the name for EVALSHA.
type script struct{ source, sha string }

func newLua(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// fallback is what a library does on NOSCRIPT.
type fallback uint8

const (
	// thenEval sends the source with EVAL (redsync, node-redlock, ioredis).
	thenEval fallback = iota
	// thenLoad sends SCRIPT LOAD, and EVALSHA again (redis-py, Redisson, redlock-rb).
	thenLoad
)

// eval runs a script as libraries do: by its hash first. NOSCRIPT says that nothing was done.
func (x exchange) eval(s script, f fallback, keys []string, args ...string) wire.Reply {
	words := evalWords("EVALSHA", s.sha, keys, args)
	r := x.do(words...)
	if !r.NoScript() {
		return r
	}
	if f == thenEval {
		return x.do(evalWords("EVAL", s.source, keys, args)...)
	}
	if load := x.do("SCRIPT", "LOAD", s.source); load.Value.Str != s.sha {
		return r // still NOSCRIPT: nothing was done
	}
	return x.do(words...)
}

func evalWords(command, script string, keys, args []string) []string {
	words := append([]string{command, script, strconv.Itoa(len(keys))}, keys...)
	return append(words, args...)
}
