package fsm

// journal notes what a script changes, so that it can be undone. Items are
// immutable and databases are replaced whole, so a change is a few pointers.
type journal struct {
	changes  []change
	versions uint64
}

// change is an item's, or a database's in its whole.
type change struct {
	database *database // the changed one, or the one that was replaced
	number   int       // of the database that was replaced
	replaced bool
	before   *item // nil: there was none
	after    *item // nil: removed
}

// start empties the journal and notes where st stands.
func (j *journal) start(st *state) {
	clear(j.changes)
	j.changes = j.changes[:0]
	j.versions = st.versions
}

func (j *journal) note(ch change) { j.changes = append(j.changes, ch) }

// rollBack undoes all changes, the newest first.
func (j *journal) rollBack(st *state) {
	for i := len(j.changes) - 1; i >= 0; i-- {
		ch := &j.changes[i]
		switch {
		case ch.replaced:
			st.databases[ch.number] = ch.database
		case ch.before != nil:
			ch.database.put(ch.before)
		default:
			ch.database.remove(ch.after)
		}
	}
	st.versions = j.versions
	j.start(st)
}
