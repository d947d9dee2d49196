package fsm

import "github.com/holdfast/holdfast/protocol"

// journal notes what a script changes, so that it can be undone. Items share their
// data and databases are replaced whole, so a change is small.
type journal struct {
	changes   []change
	creations []noted
	swaps     [protocol.MaxDatabases]uint64
	versions  uint64
}

// change is an item's, or a database's in its whole.
type change struct {
	database *database // the changed one, or the one that was replaced
	whole    bool
	number   int  // of the database that was replaced whole
	replaced bool // an item was there before
	before   item
	item     item // what came there where nothing was
}

// noted is what stood in a place of [creations].
type noted struct {
	place   uint16
	version uint64
}

// start empties the journal and notes where st stands.
func (j *journal) start(st *state) {
	clear(j.changes)
	j.changes, j.creations = j.changes[:0], j.creations[:0]
	j.versions, j.swaps = st.versions, st.swaps
}

func (j *journal) note(ch change) { j.changes = append(j.changes, ch) }

func (j *journal) noteCreation(place uint16, before uint64) {
	j.creations = append(j.creations, noted{place, before})
}

// wrote reports whether the script has changed something.
func (j *journal) wrote(st *state) bool { return len(j.changes) > 0 || st.versions != j.versions }

// rollBack undoes all changes, the newest first.
func (j *journal) rollBack(st *state) {
	for i := len(j.changes) - 1; i >= 0; i-- {
		ch := &j.changes[i]
		switch {
		case ch.whole:
			st.databases[ch.number] = ch.database
		case ch.replaced:
			ch.database.put(&ch.before)
		default:
			ch.database.remove(ch.item.hash, ch.item.key())
		}
	}
	for i := len(j.creations) - 1; i >= 0; i-- {
		st.creations[j.creations[i].place] = j.creations[i].version
	}
	st.versions, st.swaps = j.versions, j.swaps
	st.sumItems()
	j.start(st)
}
