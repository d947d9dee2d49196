package locks

// late tells, once a hold, that the hold is renewed or ends late: see [Late]. It reports whether that was told, now or
// before.
func (t *Table) late(h *hold, at int64) bool {
	if h.deadline == never {
		// A session that is over was looked at when it ended.
		if s := t.session(h.bound); !s.over {
			t.emitLateFor(s, h, at)
		}
		return false
	}
	e := t.aboutEnd(Late, h, at)
	if h.late || e.SinceRenewedMillis <= e.LeaseMillis/5*4 {
		return h.late
	}
	t.emit(e)
	return true
}

// emitLateSession looks at a session that is renewed or ends: one look, however many holds are bound to the session.
func (t *Table) emitLateSession(s *session, at int64) {
	if s.holds == 0 {
		return
	}
	first, _ := seek(t.bySession, &hold{bound: s.id})
	t.emitLateFor(s, first, at)
}

// emitLateFor tells of h for all holds of its session.
func (t *Table) emitLateFor(s *session, h *hold, at int64) {
	since := min(at-(t.endOf(s)-s.lease), at-h.since)
	if s.late || since <= s.lease/5*4 {
		return
	}
	t.ownSession(s.id).late = true
	e := t.aboutEnd(Late, h, at)
	e.SinceRenewedMillis, e.LeaseMillis = since, s.lease
	t.emit(e)
}
