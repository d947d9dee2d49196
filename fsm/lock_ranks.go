package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// Reads that only nodes make, for a list of locks in an order of its own: "lockranks" has what decides a lock's place,
// a tenth of what LOCK.LIST takes; "lockrow" shows a lock that has a place.

// lockReads are the requests.
var lockReads = map[string]op{"lockranks": lockRanksOp, "lockrow": lockRowOp}

// RankFields is the number of values of a lock in a reply to "lockranks": key, database, mode, Unix time of the first
// holder or the largest integer, and how many hold and wait.
const RankFields = 6

// lockRanksOp has the options and the cursors of LOCK.LIST.
func lockRanksOp(c *call) protocol.Value { return c.listLocks(&lockListing{ranks: true}) }

// lockRowOp is LOCK.INFO with so many holders and waiters at most.
func lockRowOp(c *call) protocol.Value {
	if len(c.Args) != 3 {
		return command.ErrArity("lockrow")
	}
	most, ok := protocol.ParseInt(c.Args[2])
	if !ok || most < 1 || most > infoRows {
		return command.ErrNotInteger
	}
	return c.lockInfo(c.Args[1], int(most))
}
