package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// maxCalledBytes bounds the Called events of an entry.
const maxCalledBytes = 16 << 20

// keptEvents bounds the events whose memory is kept for the next entry.
const keptEvents = 1 << 10

// listen prepares the events of an entry.
func (c *call) listen(i event.Interest) {
	c.Interest, c.calledBytes = i, 0
	clear(c.Events)
	if c.Events = c.Events[:0]; cap(c.Events) > keptEvents {
		c.Events = nil
	}
	clear(c.LockChanges)
	if c.LockChanges = c.LockChanges[:0]; cap(c.LockChanges) > keptEvents {
		c.LockChanges = nil
	}
}

// dropSince removes the events after the first n, and the changes of locks after the first m, which were undone.
func (c *call) dropSince(n, m int) {
	clear(c.Events[n:])
	clear(c.LockChanges[m:])
	c.Events, c.LockChanges = c.Events[:n], c.LockChanges[:m]
}

// beginBatch names the batch that runs next.
func (c *call) beginBatch(b *protocol.Batch) {
	c.OwnSeq = 0
	if b.Origin == c.thisNode {
		c.OwnSeq = b.Seq
	}
}

// endBatch emits that a batch of this node has run.
func (c *call) endBatch() {
	if c.OwnSeq != 0 && c.Interest&event.InChanges != 0 {
		c.Events = append(c.Events, event.Event{Kind: event.Ran, Seq: c.OwnSeq})
	}
	c.OwnSeq = 0
}

// forced emits that a command ended holds of others by force. locks is 0 where they are not counted.
func (c *call) forced(key string, locks int, f event.Forced) {
	if c.OwnSeq != 0 {
		f.Broken = c.broken
		c.Events = append(c.Events, event.Event{
			Kind: event.LocksForced, DB: c.DB, Key: key, Name: strings.ToLower(c.Args[0]), Other: locks, Seq: c.OwnSeq,
			Forced: &f,
		})
	}
	c.broken = nil
}

// noteReads emits the keys that a command of the script reads. The first such command emits the declared keys, too,
// since Redis 7.0 makes the client track those.
func (h *scriptHost) noteReads(row *protocol.Command, words []string) {
	c := h.call
	if c.OwnSeq == 0 || c.Interest&event.InChanges == 0 || row.Flags&protocol.FlagReadOnly == 0 {
		return
	}
	if !h.declaredNoted {
		h.declaredNoted = true
		for _, key := range h.env.Keys {
			c.noteRead(key)
		}
	}
	line := make([][]byte, len(words))
	for i, w := range words {
		line[i] = []byte(w)
	}
	positions, _ := row.KeyPositions(line)
	for _, p := range positions {
		c.noteRead(words[p])
	}
}

func (c *call) noteRead(key string) {
	c.Events = append(c.Events, event.Event{Kind: event.Read, DB: c.DB, Key: key, Seq: c.OwnSeq})
}

// called emits the command that a script calls. The work is the same on nodes without listeners, since Call has charged
// for the words.
func (c *call) called(words []string) {
	if c.OwnSeq == 0 || c.Interest&event.InCalls == 0 || c.calledBytes > maxCalledBytes {
		return
	}
	var line []byte
	for _, w := range words {
		line = append(protocol.AppendQuoted(line, w), ' ')
	}
	c.calledBytes += len(line) + command.EventWork
	e := event.Event{Kind: event.Called, DB: c.DB}
	if c.calledBytes <= maxCalledBytes {
		e.Payload = string(line[:len(line)-1])
	}
	c.Events = append(c.Events, e)
}

// publish replies 0, since each node knows only its own subscribers.
func (c *call) publish(sharded bool) protocol.Value {
	c.Spend(command.EventWork)
	if c.Interest&event.InMessages != 0 {
		c.Events = append(c.Events, event.Event{Kind: event.Published, Sharded: sharded, Name: c.Args[1], Payload: c.Args[2]})
	}
	return command.Zero
}

// setNotificationsOp sets notify-keyspace-events. Nodes write the request for CONFIG SET.
func setNotificationsOp(c *call) protocol.Value {
	if len(c.Args) != 2 {
		return command.ErrArity(c.Args[0])
	}
	cs, ok := event.ParseClasses(c.Args[1])
	if !ok {
		return protocol.Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	}
	c.st.Notifies = cs
	return protocol.OK
}
