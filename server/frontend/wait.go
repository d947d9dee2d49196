package frontend

import (
	"context"
	"math"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

func waitHandlers() map[string]handler {
	return map[string]handler{
		"wait":        {reply: wait, barrier: true},
		"waitaof":     {reply: waitAOF, barrier: true},
		"script|kill": {reply: scriptKill},
	}
}

// wait runs WAIT: it replies with the number of other nodes that have all acknowledged writes.
func wait(c *conn, args [][]byte) protocol.Value {
	n, ok := protocol.ParseInt(string(args[1]))
	if !ok {
		return protocol.ErrNotInteger.Value()
	}
	timeout, refusal, refused := parseTimeout(args[2])
	if refused {
		return refusal
	}
	return protocol.Integer(int64(c.waitReplicated(n, timeout)))
}

// waitAOF runs WAITAOF. This node's disk always counts, since a majority has stored every acknowledged write.
func waitAOF(c *conn, args [][]byte) protocol.Value {
	local, ok := protocol.ParseInt(string(args[1]))
	switch {
	case !ok:
		return protocol.ErrNotInteger.Value()
	case local < 0 || local > 1:
		return protocol.Err("value is out of range, value must between 0 and 1")
	}
	n, ok := protocol.ParseInt(string(args[2]))
	switch {
	case !ok:
		return protocol.ErrNotInteger.Value()
	case n < 0:
		return protocol.Err("value is out of range, must be positive")
	}
	timeout, refusal, refused := parseTimeout(args[3])
	if refused {
		return refusal
	}
	return protocol.Array(protocol.Integer(1), protocol.Integer(int64(c.waitReplicated(n, timeout))))
}

// parseTimeout parses milliseconds; 0 is no limit.
func parseTimeout(word []byte) (d time.Duration, refusal protocol.Value, refused bool) {
	millis, ok := protocol.ParseInt(string(word))
	switch {
	case !ok:
		return 0, protocol.Err("timeout is not an integer or out of range"), true
	case millis < 0:
		return 0, protocol.Err("timeout is negative"), true
	}
	return time.Duration(min(millis, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, protocol.Value{}, false
}

// waitReplicated waits for other nodes. As in Redis, there is no waiting inside MULTI.
func (c *conn) waitReplicated(n int64, timeout time.Duration) int {
	if c.executing || n <= 0 {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return c.srv.backend.WaitReplicated(ended, 0, time.Millisecond)
	}
	var have int
	c.whileConnected(func(ctx context.Context) {
		have = c.srv.backend.WaitReplicated(ctx, int(min(n, math.MaxInt32)), timeout)
	})
	return have
}

// scriptKill always refuses: a script ends by itself, or at the limit of its budget.
func scriptKill(*conn, [][]byte) protocol.Value {
	return protocol.ErrNotBusy.Value()
}

// whileConnected runs f with a context that ends when the client disconnects or the server stops. It first writes the
// replies to earlier commands, and keeps input that arrives meanwhile.
func (c *conn) whileConnected(f func(ctx context.Context)) {
	c.write()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.publish()
	ahead := c.readAhead(c.w.buffered()+pooledIn, cancel)
	c.setBlocked(true)
	f(ctx)
	c.setBlocked(false)
	c.join(ahead)
}

func (c *conn) setBlocked(blocked bool) {
	n := int64(1)
	if !blocked {
		n = -1
	}
	c.srv.metrics.Blocked.Add(n)
	c.update(func(s *shown) { s.blocked = blocked })
}
