package command

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Script is the state of the running script: what it has created that may be a stock lock.
type Script struct {
	// changes and versions are those of the call when the script began.
	changes  int
	versions uint64
	// claims counts the strings that the script stored where nothing was, as SET NX does.
	claims int
	// hashes are the last hashes that the script created, and created counts all of them.
	hashes  [4]createdHash
	created int
	// tookHash: a hash became a stock lock.
	tookHash bool
	// Released: a stock lock was removed.
	Released bool
}

// createdHash is a hash by its database and the hash of its key.
type createdHash struct {
	known bool
	db    int
	hash  uint64
}

// BeginScript sets the running script. Requires: of a script that may write, the changes are noted in [Call.Undo].
func (c *Call) BeginScript(s *Script) {
	*s = Script{versions: c.Keys.Versions}
	if c.Undo != nil {
		s.changes = len(c.Undo.Changes)
	}
	c.Script = s
}

// TookLock reports whether the script took a stock lock.
func (s *Script) TookLock() bool { return s.claims > 0 || s.tookHash }

// OnlyClaims reports whether a script runs that has written nothing yet but claims. Requires: the script may write.
func (c *Call) OnlyClaims() bool {
	s := c.Script
	return s != nil && len(c.Undo.Changes)-s.changes == s.claims && c.Keys.Versions-s.versions == uint64(s.claims)
}

// noteHash notes a hash that came where nothing was.
func (s *Script) noteHash(db int, it *keyspace.Item) {
	s.hashes[s.created%len(s.hashes)] = createdHash{true, db, it.Hash}
	s.created++
}

// hasCreated reports whether a hash is one of the last that the script created.
func (s *Script) hasCreated(db int, it *keyspace.Item) bool {
	return slices.Contains(s.hashes[:], createdHash{true, db, it.Hash})
}
