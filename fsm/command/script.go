package command

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Script records the items that the current script has stored and that may be stock locks.
type Script struct {
	// changes and versions are the counts of the call before the script.
	changes  int
	versions uint64
	// claims counts the strings that the script stored at missing keys, as SET NX does.
	claims int
	// hashes has the last hashes that the script created. created counts all of them.
	hashes  [4]createdHash
	created int
	// tookHash is set if one of the hashes became a stock lock.
	tookHash bool
	// Released is set if the script removed a stock lock.
	Released bool
}

// createdHash is the database of a hash, and the hash of its key.
type createdHash struct {
	known bool
	db    int
	hash  uint64
}

// BeginScript sets the current script. Requires: [Call.Undo] records the changes of a script that may write.
func (c *Call) BeginScript(s *Script) {
	*s = Script{versions: c.Keys.Versions}
	if c.Undo != nil {
		s.changes = len(c.Undo.Changes)
	}
	c.Script = s
}

// TookLock reports whether the script took a stock lock.
func (s *Script) TookLock() bool { return s.claims > 0 || s.tookHash }

// OnlyClaims reports whether a script is running and all its writes so far were claims. Requires: the script may write.
func (c *Call) OnlyClaims() bool {
	s := c.Script
	return s != nil && len(c.Undo.Changes)-s.changes == s.claims && c.Keys.Versions-s.versions == uint64(s.claims)
}

// noteHash records a hash that was created.
func (s *Script) noteHash(db int, it *keyspace.Item) {
	s.hashes[s.created%len(s.hashes)] = createdHash{true, db, it.Hash}
	s.created++
}

// hasCreated reports whether the script has created a hash, among its last ones.
func (s *Script) hasCreated(db int, it *keyspace.Item) bool {
	return slices.Contains(s.hashes[:], createdHash{true, db, it.Hash})
}
