package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// [locks.Table.Save] writes the section of native locks. Each lock also has an item among the keys of its database,
// since the item has the version of the key.

// lockWriter passes the values of the section to a snapshotWriter.
type lockWriter struct{ w *snapshotWriter }

func (l lockWriter) Uint(n uint64) { l.w.uint(n) }
func (l lockWriter) Int(n int64)   { l.w.int(n) }

// String also flushes a buffer that has become large. Each lock and each waiter has a text, so the buffer stays small.
func (l lockWriter) String(s string) { l.w.string(s); l.w.flush(1 << 15) }

// lockReader reads the values of the section from a snapshotReader.
type lockReader struct{ r *snapshotReader }

func (l lockReader) Uint() uint64   { return l.r.uint("lock table") }
func (l lockReader) Int() int64     { return l.r.int("lock table") }
func (l lockReader) String() string { return l.r.string("lock table") }
func (l lockReader) Err() error     { return l.r.err }

// LockText reads the key of a lock, and returns the text of the item that marks it. It has to compare the key with one
// item only, since items and locks have the same order in the stream.
func (l lockReader) LockText(db int) keyspace.LockText {
	key := l.String()
	if left := l.r.marked[l.r.read:]; len(left) > 0 && left[0].db == db && left[0].text.Key() == key {
		l.r.read++
		return left[0].text
	}
	return keyspace.NewLockText(key)
}

// locks reads the section of native locks. Each lock must have an item, and each item that marks a lock must have a
// lock.
func (r *snapshotReader) locks(st *state) {
	t, err := locks.Load(lockReader{r})
	if err != nil {
		r.fail("lock table: " + err.Error())
	} else if t.LastAccount() > len(st.accounts.users) {
		r.fail("account of a session or of a waiter for a lock")
	}
	if r.err != nil {
		return
	}
	st.Locks = t
	for _, at := range r.marked {
		if !t.Has(at.db, at.text.Key()) {
			r.fail("an item stands for no lock")
			return
		}
	}
	if len(r.marked) != t.LiveLocks() {
		r.fail("no item stands for a lock")
	}
}

// marker reads an item that marks a native lock. Its key was read before, into r.buf.
func (r *snapshotReader) marker(st *state) (it keyspace.Item) {
	text := keyspace.NewLockText(string(r.buf))
	words := r.uint("number of words")
	it = keyspace.NewLock(keyspace.Hash(text.Key()), text)
	r.deadlineAndVersion(st, &it)
	if r.err == nil && (words != 0 || it.DeadlineMillis != command.Never) {
		r.fail("item of a lock")
	}
	return it
}

// The section of the history:
//
//	uvarint  the last id that was issued to a loss
//	for native and for stock locks:
//	  uvarint  the last id that was issued to a cause
//	  uvarint  number of causes, each:
//	             uvarint id, bytes command, the client, bytes address, name, text
//	  twice, for losses by time and by force:
//	    uvarint  number of losses after the last row that have no row
//	    uvarint  number of rows, each:
//	               uvarint id, number of losses before it that have no row, cause, reason, database,
//	               bytes key, owner, note,
//	               uvarint fence, session, varint time of the loss, time of the grant, wall offset, the client
//
// A client is bytes node, uvarint epoch, varint connection.

func (w *snapshotWriter) history(h *lockHistory) {
	w.uint(h.lossIDs)
	for i := range h.kinds {
		w.kindHistory(&h.kinds[i])
	}
}

func (w *snapshotWriter) kindHistory(k *kindHistory) {
	w.uint(k.causeIDs)
	w.uint(uint64(len(k.causes)))
	for _, each := range k.causes {
		w.uint(each.id)
		w.string(each.command)
		w.client(each.client)
		w.string(each.address)
		w.string(each.name)
		w.string(each.text)
	}
	for _, list := range []*lossList{&k.byTime, &k.byForce} {
		w.uint(list.left)
		w.uint(uint64(len(list.rows)))
		for _, each := range list.rows {
			w.loss(each)
		}
	}
}

func (w *snapshotWriter) client(c locks.Client) {
	w.string(c.Origin.Node)
	w.uint(c.Origin.Epoch)
	w.int(c.Conn)
}

func (w *snapshotWriter) loss(l *lockLoss) {
	w.uint(l.id)
	w.uint(l.left)
	w.uint(l.causeID)
	w.uint(uint64(l.reason))
	w.uint(uint64(l.db))
	w.string(l.key)
	w.string(l.owner)
	w.string(l.note)
	w.uint(l.fence)
	w.uint(l.session)
	w.int(l.atMillis)
	w.int(l.sinceMillis)
	w.int(l.wallOffset)
	w.client(l.client)
}

func (r *snapshotReader) history(st *state) {
	h := &st.history
	h.lossIDs = r.uint("losses")
	for kind := range h.kinds {
		r.kindHistory(st, kind)
	}
}

func (r *snapshotReader) kindHistory(st *state, kind int) {
	k := &st.history.kinds[kind]
	k.causeIDs = r.uint("causes")
	last := uint64(0)
	for n := r.uint("causes"); n > 0 && r.err == nil; n-- {
		cause := &lossCause{
			id: r.uint("cause"), command: r.string("command"), client: r.client(st),
			address: r.string("address"), name: r.string("name"), text: r.string("reason"),
		}
		k.causes, k.causeBytes = append(k.causes, cause), k.causeBytes+cause.bytes()
		if cause.id <= last || cause.id > k.causeIDs || len(k.causes) > keptCauses || k.causeBytes > keptCauseBytes {
			r.fail("cause of a loss")
		}
		last = cause.id
	}
	for _, list := range []*lossList{&k.byTime, &k.byForce} {
		list.left = r.uint("losses")
		last = 0
		for n := r.uint("losses"); n > 0 && r.err == nil; n-- {
			loss := r.loss(st)
			loss.kind = kind
			held := len(list.rows)
			if r.err != nil {
				return
			}
			list.put(loss)
			if (loss.fence == 0) != (kind == stockLocks) {
				r.fail("fence of a loss")
			}
			if loss.id <= last || loss.id > st.history.lossIDs || k.list(loss.reason) != list || len(list.rows) != held+1 {
				r.fail("loss of a lock")
			}
			last = loss.id
		}
	}
}

func (r *snapshotReader) client(st *state) (c locks.Client) {
	c.Origin.Node = st.sessions.nameOf(r.string("node of a client"))
	c.Origin.Epoch, c.Conn = r.uint("epoch of a client"), r.int("connection")
	return c
}

func (r *snapshotReader) loss(st *state) *lockLoss {
	l := &lockLoss{id: r.uint("loss"), left: r.uint("loss"), causeID: r.uint("cause")}
	reason := r.uint("reason")
	if reason == 0 || reason > uint64(locks.Flushed) {
		r.fail("reason of a loss")
	}
	l.reason, l.db = locks.Reason(reason), r.databaseNumber()
	l.key, l.owner, l.note = r.string("key"), r.string("owner"), r.string("note")
	l.fence, l.session = r.uint("fence"), r.uint("session")
	l.atMillis, l.sinceMillis, l.wallOffset = r.int("instant"), r.int("instant"), r.int("wall offset")
	l.client = r.client(st)
	return l
}
