package raftnode

import "github.com/hashicorp/raft"

// logSizes knows how many of the newest entries make up how many bytes, up to laggingTimes the limit. Entries are
// counted in blocks.
type logSizes struct {
	limit  int64       // bytes of what is kept over a snapshot
	blocks []sizeBlock // in order; together the newest entries
}

// sizeBlock is consecutive entries.
type sizeBlock struct {
	first uint64 // index of the first entry
	bytes int64
}

const (
	// sizeBlocks is how many blocks the limit is divided into.
	sizeBlocks = 64
	// maxBlocks hold laggingTimes the limit: all but the newest are full.
	maxBlocks = laggingTimes*sizeBlocks + 1
	// entryBytes is about the size of an entry in the log without the data.
	entryBytes = 64
)

func sizeOfEntry(log *raft.Log) int64 { return int64(len(log.Data)+len(log.Extensions)) + entryBytes }

// append counts entries that follow the others, or take the place of some.
func (s *logSizes) append(logs []*raft.Log) {
	for _, log := range logs {
		n := len(s.blocks)
		for n > 0 && s.blocks[n-1].first >= log.Index {
			n--
		}
		s.blocks = s.blocks[:n]
		if n == 0 || s.blocks[n-1].bytes >= s.limit/sizeBlocks {
			s.blocks = append(s.blocks, sizeBlock{first: log.Index})
			n++
		}
		s.blocks[n-1].bytes += sizeOfEntry(log)
	}
	if n := len(s.blocks) - maxBlocks; n > 0 {
		s.blocks = append(s.blocks[:0], s.blocks[n:]...)
	}
}

// newest returns the first of the newest entries, up to last, that have limit bytes together, and
// their bytes. The bytes are fewer if the blocks hold no more.
func (s *logSizes) newest(last uint64, limit int64) (first uint64, bytes int64) {
	first = last + 1
	for i := len(s.blocks) - 1; i >= 0 && bytes < limit; i-- {
		first, bytes = min(first, s.blocks[i].first), bytes+s.blocks[i].bytes
	}
	return first, bytes
}
