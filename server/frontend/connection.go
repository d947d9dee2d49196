package frontend

import (
	"github.com/holdfast/holdfast/protocol"
)

func connectionLocals() map[string]local {
	return map[string]local{
		"ping":   {answer: ping},
		"echo":   {answer: echo},
		"select": {answer: selectDatabase},
		"reset":  {answer: reset, unqueued: true},
		"quit":   {answer: quit, unqueued: true},
	}
}

func ping(_ *conn, words [][]byte) protocol.Value {
	switch len(words) {
	case 1:
		return protocol.Simple("PONG")
	case 2:
		return protocol.Bulk(string(words[1]))
	}
	return protocol.WrongArity("ping").Value()
}

func echo(_ *conn, words [][]byte) protocol.Value { return protocol.Bulk(string(words[1])) }

func selectDatabase(c *conn, words [][]byte) protocol.Value {
	db, refusal, refused := parseDatabase(words[1])
	if refused {
		return refusal
	}
	c.db = db
	return protocol.OK
}

func parseDatabase(word []byte) (db int, refusal protocol.Value, refused bool) {
	n, ok := protocol.ParseInt(string(word))
	switch {
	case !ok || int64(int32(n)) != n:
		return 0, protocol.ErrNotInteger.Value(), true
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, protocol.ErrDBIndex.Value(), true
	}
	return int(n), protocol.Value{}, false
}

// reset puts the connection into the state of a new one.
func reset(c *conn, _ [][]byte) protocol.Value {
	c.endTransaction()
	c.db, c.resp = 0, protocol.RESP2
	c.reply = replyMode{}
	c.setAuthenticated(c.srv.cfg.Password == "")
	c.held.spared.Store(false)
	c.mu.Lock()
	c.shown.name, c.shown.noEvict, c.shown.noTouch = "", false, false
	c.mu.Unlock()
	return protocol.Simple("RESET")
}

// quit ends the connection once everything up to here is answered.
func quit(c *conn, _ [][]byte) protocol.Value {
	c.closing = true
	return protocol.OK
}
