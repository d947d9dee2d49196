package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// redisLibrary returns the table redis. Its errors are tables whose field err is the text. Only an error that ends the
// script gets a position.
func (b *libraryBuilder) redisLibrary() *table {
	t := b.table([]entry{
		{"call", redisCall},
		{"pcall", redisPcall},
		{"error_reply", redisErrorReply},
		{"status_reply", redisStatusReply},
		{"sha1hex", redisSha1Hex},
		{"log", redisLog},
		{"setresp", redisSetResp},
		{"replicate_commands", func(l *state, _ []value) (int, *raised) { return l.one(trueValue) }},
		{"set_repl", redisSetRepl},
		{"breakpoint", func(l *state, _ []value) (int, *raised) { return l.one(falseValue) }},
		{"debug", func(*state, []value) (int, *raised) { return 0, nil }},
		{"acl_check_cmd", redisACLCheck},
	})
	// The order of pairs depends on the order of these assignments, so they are in a slice.
	for _, c := range []struct {
		name string
		n    float64
	}{
		{"LOG_DEBUG", LogDebug},
		{"LOG_VERBOSE", LogVerbose},
		{"LOG_NOTICE", LogNotice},
		{"LOG_WARNING", LogWarning},
		{"REPL_NONE", 0},
		{"REPL_AOF", 1},
		{"REPL_SLAVE", 2},
		{"REPL_REPLICA", 2},
		{"REPL_ALL", 3},
	} {
		b.set(t, c.name, number(c.n))
	}
	b.set(t, "REDIS_VERSION", constant(protocol.RedisVersion))
	b.set(t, "REDIS_VERSION_NUM", number(versionNumber(protocol.RedisVersion)))
	return t
}

// versionNumber returns the number of a version such as 8.0.2. Each part is a byte of the number.
func versionNumber(version string) float64 {
	n := 0
	for part := range strings.SplitSeq(version, ".") {
		digits, _ := strconv.Atoi(part)
		n = n<<8 | digits
	}
	return float64(n)
}

// errorTable returns a table whose field err is a text, which has a prefix.
func (l *state) errorTable(text string) value {
	t := l.newTable(0, 1)
	t.set(l, value{o: fieldErr}, l.newString(text))
	return value{o: t}
}

// redisError returns an error table with the prefix ERR.
func (l *state) redisError(text string) *raised {
	return &raised{value: l.errorTable("ERR " + text)}
}

// errorLine returns the text of an error reply: without the dash and the line breaks, and with the prefix ERR if the
// text is one word.
func errorLine(line string) string {
	prefix, message, found := strings.Cut(strings.TrimPrefix(line, "-"), " ")
	if !found {
		prefix, message = "ERR", prefix
	}
	return prefix + " " + strings.Trim(message, "\r\n")
}

// commandWords converts arguments to the words of a command. The slice is valid until the next call.
func (l *state) commandWords(args []value) ([]string, *raised) {
	if len(args) == 0 {
		return nil, l.redisError("Please specify at least one argument for this redis lib call")
	}
	words := l.words[:0]
	for _, v := range args {
		switch x := v.o.(type) {
		case *str:
			words = append(words, x.s)
		case numberTag:
			var digits [32]byte
			l.alloc(stringBytes)
			words = append(words, string(appendG(digits[:0], v.n, 17)))
		default:
			return nil, l.redisError("Lua redis lib command arguments must be strings or integers")
		}
	}
	l.charge(int64(len(words)) / 4)
	l.words = words
	return words, nil
}

// callSteps is the charge for a call of the host, without the charge for its reply.
const callSteps = 20

// callHost runs a command, and converts the reply.
func (l *state) callHost(args []value) (v value, isError bool, err *raised) {
	words, err := l.commandWords(args)
	if err != nil {
		return err.value, true, nil
	}
	l.charge(callSteps)
	l.inHost = true
	reply := l.env.Host.Call(words, l.resp)
	l.inHost = false
	clear(words)
	v, err = l.fromReply(reply, 0)
	return v, reply.Kind == protocol.KindError, err
}

func redisCall(l *state, args []value) (int, *raised) {
	v, isError, err := l.callHost(args)
	if err != nil {
		return 0, err
	}
	if isError {
		return 0, &raised{value: v}
	}
	return l.one(v)
}

func redisPcall(l *state, args []value) (int, *raised) {
	v, _, err := l.callHost(args)
	if err != nil {
		return 0, err
	}
	return l.one(v)
}

func redisErrorReply(l *state, args []value) (int, *raised) {
	s, is := arg(args, 1).str()
	if !is || len(args) != 1 {
		return l.one(l.errorTable("ERR wrong number or type of arguments"))
	}
	return l.one(l.errorTable(errorLine(cString(s.s))))
}

func redisStatusReply(l *state, args []value) (int, *raised) {
	if _, is := arg(args, 1).str(); !is || len(args) != 1 {
		return l.one(l.errorTable("ERR wrong number or type of arguments"))
	}
	t := l.newTable(0, 1)
	t.set(l, value{o: fieldOK}, args[0])
	return l.one(value{o: t})
}

func redisSha1Hex(l *state, args []value) (int, *raised) {
	if len(args) != 1 {
		return 0, l.redisError("wrong number of arguments")
	}
	s, _ := l.textOf(args[0])
	l.charge(int64(len(s))>>4 + 10)
	sum := sha1.Sum([]byte(s))
	return l.one(l.newString(hex.EncodeToString(sum[:])))
}

func redisLog(l *state, args []value) (int, *raised) {
	if len(args) < 2 {
		return 0, l.redisError("redis.log() requires two arguments or more.")
	}
	level, ok := l.toNumber(args[0])
	if !ok {
		return 0, l.redisError("First argument must be a number (log level).")
	}
	if n := toInt32(level); n < LogDebug || n > LogWarning {
		return 0, l.redisError("Invalid debug level.")
	}
	var line strings.Builder
	for i, v := range args[1:] {
		s, isText := l.textOf(v)
		if !isText {
			continue
		}
		if i > 0 {
			l.formatted(&line, " ")
		}
		l.formatted(&line, s)
	}
	l.charge(callSteps)
	l.inHost = true
	l.env.Host.Log(toInt32(level), line.String())
	l.inHost = false
	return 0, nil
}

func redisSetResp(l *state, args []value) (int, *raised) {
	if len(args) != 1 {
		return 0, l.redisError("redis.setresp() requires one argument.")
	}
	version, _ := l.toNumber(args[0])
	n := toInt32(version)
	if n != protocol.RESP2 && n != protocol.RESP3 {
		return 0, l.redisError("RESP version must be 2 or 3.")
	}
	l.resp = n
	return 0, nil
}

// redisSetRepl checks the argument and does nothing, since the log replicates the script and not its effects.
func redisSetRepl(l *state, args []value) (int, *raised) {
	if len(args) != 1 {
		return 0, l.redisError("redis.set_repl() requires two arguments.")
	}
	flags, _ := l.toNumber(args[0])
	if toInt32(flags)&^3 != 0 {
		return 0, l.redisError("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return 0, nil
}

func redisACLCheck(l *state, args []value) (int, *raised) {
	words, err := l.commandWords(args)
	if err != nil {
		return 0, err
	}
	l.charge(callSteps)
	l.inHost = true
	allowed, errText := l.env.Host.CheckACL(words)
	l.inHost = false
	clear(words)
	if errText != "" {
		return 0, &raised{value: l.errorTable(errText)}
	}
	return l.one(boolean(allowed))
}
