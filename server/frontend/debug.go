package frontend

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

func debugHandlers() map[string]handler {
	return map[string]handler{
		"debug":  {reply: debugCommand, barrier: true},
		"lolwut": {reply: lolwut},
	}
}

// debugCommand runs the few subcommands of DEBUG that tests of clients use. DEBUG SLEEP delays only its sender.
func debugCommand(c *conn, args [][]byte) protocol.Value {
	sub := strings.ToLower(string(args[1]))
	switch {
	case sub == "sleep" && len(args) == 3:
		seconds, err := strconv.ParseFloat(string(args[2]), 64)
		if err != nil || math.IsNaN(seconds) {
			return protocol.ErrNotFloat.Value()
		}
		c.sleep(time.Duration(min(max(seconds, 0), 3600) * float64(time.Second)))
		return protocol.OK
	case sub == "error" && len(args) == 3:
		return protocol.ErrValue(string(args[2]))
	case sub == "protocol" && len(args) == 3:
		return debugProtocol(strings.ToLower(string(args[2])))
	case sub == "help" && len(args) == 2:
		return protocol.Array(
			protocol.Simple("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
			protocol.Simple("ERROR <string>"), protocol.Simple("    Return a Redis protocol error with <string> as message."),
			protocol.Simple("PROTOCOL <type>"), protocol.Simple("    Reply with a test value of the specified type."),
			protocol.Simple("SLEEP <seconds>"),
			protocol.Simple("    Keep this connection waiting for <seconds>. Decimals allowed."),
			protocol.Simple("HELP"), protocol.Simple("    Print this help."))
	}
	if faults := c.srv.cfg.Options.Faults; faults != nil {
		var line []string
		for _, w := range args[1:] {
			line = append(line, string(w))
		}
		if reply, known := faults(line); known {
			return reply
		}
	}
	return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try DEBUG HELP.")
}

func (c *conn) sleep(d time.Duration) {
	c.whileConnected(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	})
}

// debugProtocol returns a value of each type, the same values as Redis.
func debugProtocol(kind string) protocol.Value {
	counted := func(pair int) []protocol.Value {
		var elems []protocol.Value
		for i := range int64(3) {
			elems = append(elems, protocol.Integer(i))
			if pair == 2 {
				elems = append(elems, protocol.Bool(i == 1))
			}
		}
		return elems
	}
	switch kind {
	case "string":
		return protocol.Bulk("Hello World")
	case "integer":
		return protocol.Integer(12345)
	case "double":
		return protocol.Double(3.141)
	case "null":
		return protocol.Null
	case "array":
		return protocol.Array(counted(1)...)
	case "set":
		return protocol.Set(counted(1)...)
	case "map":
		return protocol.Map(counted(2)...)
	case "push":
		return protocol.Push(protocol.Bulk("server-cpu-usage"), protocol.Integer(42))
	case "verbatim":
		return protocol.Verbatim("This is a verbatim\nstring")
	case "bignum":
		return protocol.BigNumber("1234567999999999999999999999999999999")
	case "true":
		return protocol.Bool(true)
	case "false":
		return protocol.Bool(false)
	}
	return protocol.Err("Wrong protocol type name. Please use one of the following: " +
		"string|integer|double|null|array|set|map|push|verbatim|bignum|true|false")
}

// lolwut draws a lock.
func lolwut(_ *conn, args [][]byte) protocol.Value {
	if len(args) >= 3 && strings.EqualFold(string(args[1]), "version") {
		if _, ok := protocol.ParseInt(string(args[2])); !ok {
			return protocol.ErrNotInteger.Value()
		}
	}
	return protocol.Verbatim("" +
		"    .--.\n" +
		"   /.-. \\\n" +
		"   ||  ||\n" +
		" .-''''''-.\n" +
		" |   ()   |\n" +
		" |   ||   |\n" +
		" '--------'\n" +
		"Holdfast ver. " + protocol.HoldfastVersion + ", Redis ver. " + protocol.RedisVersion + "\n")
}
