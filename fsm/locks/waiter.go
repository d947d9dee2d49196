package locks

// line puts a waiter into all queues. Requires: the locks are there.
func (t *Table) line(w *waiter) {
	for i, key := range w.keys() {
		l := t.take(int(w.db), key)
		m := t.extensionOf(l)
		r := w.rankAt(i)
		m.ranks[r]++
		p := placeAt(l, r, w.order)
		p.waiter = w
		t.places.Set(p)
		t.waiting.Set(stand{l.id(), w})
		if i == 0 && w.deadline != never {
			t.waitEnds.Set(stand{l.id(), w})
		}
		if w.session != 0 {
			m.sessionWaits++
		}
		if len(w.keys()) > 1 {
			m.many++
		}
	}
	if !w.absent {
		t.names.Set(w)
	}
	if w.session != 0 {
		t.waitsBySession.Set(w)
		t.ownSession(w.session).waiters++
	}
	t.payPlaces(w)
	t.waiterCount++
	t.counts.Add(int(w.account), 1)
	t.waitingBytes += w.bytes()
	t.bytes += w.bytes()
}

// unline takes a waiter out of all queues.
func (t *Table) unline(w *waiter) {
	for i, key := range w.keys() {
		l := t.take(int(w.db), key)
		m := l.more
		r := w.rankAt(i)
		m.ranks[r]--
		t.places.Delete(placeAt(l, r, w.order))
		t.waiting.Delete(stand{l.id(), w})
		if i == 0 && w.deadline != never {
			t.waitEnds.Delete(stand{l.id(), w})
		}
		if w.session != 0 {
			m.sessionWaits--
		}
		if len(w.keys()) > 1 {
			m.many--
		}
	}
	if !w.absent {
		t.names.Delete(w)
	}
	if w.session != 0 {
		t.waitsBySession.Delete(w)
		t.ownSession(w.session).waiters--
	}
	t.payPlaces(w)
	t.waiterCount--
	t.counts.Add(int(w.account), -1)
	t.waitingBytes -= w.bytes()
	t.bytes -= w.bytes()
}

// relined puts a changed copy of a waiter in its place.
func (t *Table) relined(old, w *waiter) {
	t.unline(old)
	t.line(w)
}

// wakeAll notes that others in the queues of a waiter may be granted.
func (t *Table) wakeAll(w *waiter) {
	for _, key := range w.keys() {
		t.wake(t.take(int(w.db), key))
	}
}

// dismiss ends a wait without a grant. err is what the client is told; none is told of an absent one.
func (t *Table) dismiss(w *waiter, err error) {
	t.unline(w)
	t.wakeAll(w)
	t.emitEndOfWait(w, 0, err)
	t.emitLeft(w, departureOf(err))
}

func departureOf(err error) Departure {
	switch err {
	case nil:
		return Cancelled
	case ErrNoSession:
		return WithSession
	case ErrUnblocked:
		return Unblocked
	case ErrDropped:
		return Disconnected
	}
	return Refused
}

// emitLeft tells who listens that a waiter is in its queues no more.
func (t *Table) emitLeft(w *waiter, how Departure) {
	waited := t.now - w.since
	if w.absent { // the wait was over before, and the place kept
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		l := t.find(int(w.db), key)
		t.emit(Effect{
			Kind: Left, How: how, DB: int(w.db), Key: l.key(), Owner: w.owner, Session: w.session, Client: w.client(),
			Waiters: l.waiters(), WaitedMillis: waited,
		})
		waited = 0
	}
}

// emitEndOfWait tells the client of a waiter that the wait is over.
func (t *Table) emitEndOfWait(w *waiter, fence uint64, err error) {
	if !w.absent {
		t.emit(t.endOfWait(w, fence, err))
	}
}

func (t *Table) endOfWait(w *waiter, fence uint64, err error) Effect {
	return Effect{
		Kind: WaitEnded, DB: int(w.db), Key: w.keys()[0], Owner: w.owner, Fence: fence, Session: w.session,
		Notify: w.notify, Client: w.client(), Name: w.name(), Err: err, WaitedMillis: t.now - w.since,
	}
}
