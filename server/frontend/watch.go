package frontend

import "github.com/holdfast/holdfast/protocol"

// watches has the keys that a connection watches, with their marks.
type watches struct {
	keys []protocol.Watch
	// index has the keys. bytes is their memory.
	index map[watchedKey]struct{}
	bytes int
	// pending counts the WATCH requests without a reply yet.
	pending int
	// broken is set if a WATCH failed. EXEC must then not run, even if the client ignored the error.
	broken bool
	// generation changes when the watches are cleared, so that late marks are recognised.
	generation int
}

func (ws *watches) clear() {
	*ws = watches{generation: ws.generation + 1}
}

type watchedKey struct {
	db  int
	key string
}

// add adds a key, and returns false if the key is watched already.
func (ws *watches) add(db int, key string) bool {
	if ws.index == nil {
		ws.index = make(map[watchedKey]struct{})
	}
	k := watchedKey{db, key}
	if _, ok := ws.index[k]; ok {
		return false
	}
	ws.index[k] = struct{}{}
	ws.keys = append(ws.keys, protocol.Watch{DB: db, Key: key})
	ws.bytes += len(key) + 64
	return true
}

// watch requests the marks of new keys. A key that is watched already keeps its first mark.
func watch(c *conn, req *request) {
	if c.tx != nil {
		c.reply(nil, protocol.ErrWatchInMulti.Value())
		return
	}
	ws := &c.watches
	cause := c.validate(req)
	if cause == nil && ws.bytes > c.srv.cfg.MaxQueryBytes {
		cause = protocol.NewError("watched keys exceed the query buffer limit")
	}
	if cause != nil {
		ws.broken = true
		c.reply(req.row, cause.Value())
		return
	}
	c.makeRoom(req.encodedBytes())
	from, held := len(ws.keys), ws.bytes
	var fresh [][]byte
	for _, key := range req.args[1:] {
		if ws.add(c.db, string(key)) {
			fresh = append(fresh, key)
		}
	}
	c.accountQueue(held, ws.bytes)
	if len(fresh) == 0 {
		c.reply(req.row, protocol.OK)
		return
	}
	ws.pending++
	batch := &c.w.batch
	batch.Body = protocol.AppendRequest(batch.Body, protocol.Head{DB: c.db}, req.Name, fresh)
	c.addRequest(slot{kind: slotWatch, row: req.row, from: from, to: len(ws.keys), generation: ws.generation}, false, 0)
}

// noteMarks stores the marks in v, and returns the reply to WATCH.
func (ws *watches) noteMarks(s *slot, v protocol.Value) protocol.Value {
	good := v.Kind == protocol.KindArray && len(v.Elems) == s.to-s.from
	if s.generation == ws.generation {
		ws.pending--
		if !good {
			ws.broken = true
		} else {
			for i, e := range v.Elems {
				ws.keys[s.from+i].Mark = uint64(e.Num)
			}
		}
	}
	switch {
	case good:
		return protocol.OK
	case v.IsError():
		return v
	default:
		return protocol.Err("internal error: no marks of the watched keys")
	}
}

func unwatch(c *conn, _ [][]byte) protocol.Value {
	c.watches.clear()
	return protocol.OK
}
