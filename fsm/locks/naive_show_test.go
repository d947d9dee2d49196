package locks

import "slices"

// info describes a lock as the table should.
func (n *naive) info(db int, key string) *Info {
	l := n.lock(db, key)
	i := &Info{DB: db, Key: key}
	for _, h := range l.holds {
		i.Holds = append(i.Holds, Hold{
			Owner: h.owner, Fence: h.grant.fence, Mode: h.mode, Count: h.count, Permits: h.permits, Session: h.session,
			LeftMillis: h.left(n.now), LeaseMillis: h.lease, SinceMillis: h.since, Note: h.note, Client: h.client,
		})
		i.Mode, i.Permits = h.mode, i.Permits+h.permits
	}
	slices.SortFunc(i.Holds, func(a, b Hold) int { return int(a.Fence) - int(b.Fence) })
	for _, w := range n.queue {
		if w.DB != db || !slices.Contains(w.Keys, key) {
			continue
		}
		v := Wait{
			Owner: w.Owner, Mode: w.Mode, Limit: int64(w.Limit), Permits: int64(w.Permits), Session: w.Session, SinceMillis: w.since,
			LeftMillis: -1,
			Absent:     w.absent, Notify: w.Notify, Keys: len(w.Keys), Note: w.Note, Client: w.Client,
		}
		if w.deadline != never {
			v.LeftMillis = w.deadline - n.now
		}
		i.Waits = append(i.Waits, v)
	}
	i.Holders, i.Waiters = len(i.Holds), len(i.Waits)
	if l.delay != 0 {
		i.DelayLeftMillis = l.delay - n.now
	}
	if i.Holders == 0 && i.Waiters == 0 && l.delay == 0 {
		return nil
	}
	return i
}

func (h *nHold) left(now int64) int64 {
	if h.session != 0 {
		return -1
	}
	return h.deadline - now
}

func (n *naive) sessionInfo(id uint64) *SessionInfo {
	s := n.session(id)
	if s == nil {
		return nil
	}
	i := &SessionInfo{
		ID: id, Name: s.name, LeaseMillis: s.lease, LeftMillis: n.endOf(s) - n.now, OpenedMillis: s.opened,
		Connection: s.client != (Client{}), Client: s.client,
	}
	for _, l := range n.locks {
		for _, h := range l.holds {
			if h.session == id {
				i.Holds++
			}
		}
	}
	for _, w := range n.queue {
		if w.Session == id {
			i.Waiters++
		}
	}
	return i
}
