package command

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// Journal notes the changes of a script or a transaction, to undo them. A change is small: items share
// their data, and databases are replaced whole.
type Journal struct {
	Changes []Change
	NewKeys []notedVersion
}

// Change is the change of an item, or of a whole database.
type Change struct {
	Database *keyspace.Keyspace // the changed database, or the replaced one
	Whole    bool
	Number   int  // of the replaced database
	Replaced bool // an item was there before
	Before   keyspace.Item
	Item     keyspace.Item // what came there where nothing was
	Locks    *locks.Table  // the lock table from before, if the change is of that
}

// notedVersion is what stood in a place of [NewKeyVersions].
type notedVersion struct {
	Place   uint16
	Version uint64
}

func (j *Journal) Note(ch Change) { j.Changes = append(j.Changes, ch) }

func (j *Journal) noteNewKey(place uint16, before uint64) {
	j.NewKeys = append(j.NewKeys, notedVersion{place, before})
}
