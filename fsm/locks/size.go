package locks

// What the table counts for, in bytes: measured by TestMemory, and rounded up.
const (
	lockBytes      = 120
	extensionBytes = 176
	holdBytes      = 136
	extraBytes     = 48
	memberBytes    = 80
	waiterBytes    = 400
	placeBytes     = 96
	sessionBytes   = 220
)

func (l *lock) bytes() int64 { return int64(lockBytes + len(l.key)) }

func (h *hold) bytes() int64 {
	n := int64(holdBytes + len(h.owner))
	if h.extra != nil {
		n += int64(extraBytes + len(h.extra.note) + len(h.extra.call))
	}
	return n
}

func (w *waiter) bytes() int64 {
	return int64(waiterBytes + len(w.Owner) + len(w.Note) + len(w.Call) + len(w.Keys)*placeBytes)
}

func (s *session) bytes() int64 { return int64(sessionBytes + len(s.name)) }
