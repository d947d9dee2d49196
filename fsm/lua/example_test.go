package lua_test

import (
	"fmt"

	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// locks is a host with one lock.
type locks struct{ holder string }

func (h *locks) Call(words []string, _ int) protocol.Value {
	switch words[0] {
	case "get":
		return protocol.Bulk(h.holder)
	case "del":
		h.holder = ""
		return protocol.Integer(1)
	}
	return protocol.Err("unknown command")
}

func (h *locks) CheckACL([]string) (bool, string) { return true, "" }

func (h *locks) Log(int, string) {}

// A program is compiled once, and run by every EVAL.
func Example() {
	program, err := lua.Compile(`
		if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
		return 0`, lua.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	runner, host := lua.NewRunner(), &locks{holder: "token"}
	for _, token := range []string{"other", "token"} {
		reply, err := runner.Run(program, &lua.Env{Keys: []string{"lock"}, Args: []string{token}, Host: host})
		fmt.Println(reply.Num, err, host.holder)
	}
	// Output:
	// 0 <nil> token
	// 1 <nil>
}
