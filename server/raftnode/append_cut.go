package raftnode

import (
	"slices"

	"github.com/hashicorp/raft"
)

// cutAppend returns the request that is sent for args, and what remains of args after that, or nil.
//
// Raft gives up to 32 entries at a time, which may be a gigabyte. Over a slow link such a request
// would never get through, as each attempt begins anew. Raft would make both requests like this for
// fewer entries: the second follows the last entry of the first. Entries that raft got without
// their data are loaded for the first request; the first entry of the second may be loaded, too, as
// the entry's size decides.
func cutAppend(args *raft.AppendEntriesRequest, log *parallelLog) (piece, rest *raft.AppendEntriesRequest, err error) {
	piece = args // raft's own request stays unchanged
	size := 0
	for i, given := range args.Entries {
		e, err := log.withData(given)
		if err != nil {
			return nil, nil, err
		}
		if e != given && piece == args {
			own := *args
			own.Entries = slices.Clone(args.Entries)
			piece = &own
		}
		if e != given {
			piece.Entries[i] = e
		}
		if size += len(e.Data) + len(e.Extensions); size <= appendGather || i == 0 {
			continue
		}
		first, others := *piece, *piece
		last := args.Entries[i-1]
		// A copy, so that others does not keep the entries that were sent in memory.
		first.Entries, others.Entries = piece.Entries[:i], slices.Clone(piece.Entries[i:])
		others.PrevLogEntry, others.PrevLogTerm = last.Index, last.Term
		return &first, &others, nil
	}
	return piece, nil, nil
}
