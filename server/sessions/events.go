package sessions

import (
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// Events handles the events of an applied entry: sessions that were attached to or detached from connections of this
// node, and holds that these have lost.
func (r *Renewer) Events(events []event.Event) {
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case event.SessionKept:
			r.sessionAttached(e.Lock.Conn, e.Lock.Session, e.Lock.LeaseMillis)
		case event.SessionLeft:
			r.sessionDetached(e.Lock.Conn, e.Lock.Session)
		case event.LockLost:
			words := []protocol.Value{
				protocol.Bulk("lock"), protocol.Bulk("lost"),
				protocol.Bulk(e.Key), protocol.Bulk(e.Lock.Owner), protocol.Integer(e.Lock.Fence), protocol.Bulk(e.Lock.Reason),
			}
			if e.Lock.Text != "" || e.Lock.By != "" {
				words = append(words, protocol.Bulk(e.Lock.Text), protocol.Bulk(e.Lock.By))
			}
			r.post(e.Lock.Conn, push.ForRESP3(words...))
		}
	}
}

// lease converts a lease of the state, capped at some centuries.
func lease(millis int64) time.Duration {
	const most = int64(1<<62) / int64(time.Millisecond)
	return time.Duration(min(millis, most)) * time.Millisecond
}
