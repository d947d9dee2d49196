package frontend

import (
	"strconv"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// AddPolls adds to a reply to LOCK.LIST, or to LOCK.INFO about a key, who polls for stock locks.
func (s *Server) AddPolls(db int, key string, v protocol.Value) {
	rows := rowsOf(v)
	for i := range rows {
		s.addPolls(&rows[i], db, key)
	}
}

// addPolls adds those who poll for a stock lock to its row, which has names before values. The key and the database of
// a row of LOCK.LIST stand in the row.
func (s *Server) addPolls(row *protocol.Value, db int, key string) {
	var mode string
	var count, list *protocol.Value
	for i := 1; i < len(row.Elems); i += 2 {
		switch v := &row.Elems[i]; row.Elems[i-1].Str {
		case "key":
			key = v.Str
		case "db":
			db = int(v.Num)
		case "mode":
			mode = v.Str
		case "waiters-count":
			count = v
		case "waiters":
			list = v
		}
	}
	if mode != "stock" || count == nil || list == nil {
		return
	}
	waiters := s.backend.StockWaiters(db, key)
	*count = protocol.Integer(int64(len(waiters)))
	shown := make([]protocol.Value, 0, min(len(waiters), mostPolls))
	for i := range waiters[:min(len(waiters), mostPolls)] {
		shown = append(shown, showPoll(&waiters[i]))
	}
	*list = protocol.Array(shown...)
}

// mostPolls is how many of those who poll for a stock lock are shown.
const mostPolls = 100

// showPoll is a client that polls, with the fields of a waiter.
func showPoll(w *fsm.StockWaiter) protocol.Value {
	client, incarnation := "", int64(0)
	if w.Conn != 0 {
		client, incarnation = w.Origin.Node+"/"+strconv.FormatInt(w.Conn, 10), int64(w.Origin.Epoch)
	}
	return protocol.Map(
		protocol.Bulk("owner"), protocol.Bulk(w.Owner),
		protocol.Bulk("mode"), protocol.Bulk("stock"),
		protocol.Bulk("limit"), protocol.Integer(0),
		protocol.Bulk("permits"), protocol.Integer(0),
		protocol.Bulk("keys"), protocol.Integer(1),
		protocol.Bulk("session"), protocol.Integer(0),
		protocol.Bulk("since"), protocol.Integer(w.SinceMillis),
		protocol.Bulk("wait-left"), protocol.Integer(-1),
		protocol.Bulk("absent"), protocol.Integer(0),
		protocol.Bulk("notify"), protocol.Integer(0),
		protocol.Bulk("note"), protocol.Bulk(""),
		protocol.Bulk("client"), protocol.Bulk(client),
		protocol.Bulk("incarnation"), protocol.Integer(incarnation),
		protocol.Bulk("polls"), protocol.Integer(w.Refusals))
}
