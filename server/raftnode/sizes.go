package raftnode

import "github.com/hashicorp/raft"

// logSizes maps bytes to the number of newest entries that have them, up to laggingTimes the limit. It counts entries
// in blocks.
type logSizes struct {
	limit  int64       // bytes of entries to keep behind a snapshot
	blocks []sizeBlock // the newest entries, in order
}

// sizeBlock is consecutive entries.
type sizeBlock struct {
	first uint64 // index of the first entry
	bytes int64
}

const (
	// sizeBlocks is the number of blocks into which the limit is divided.
	sizeBlocks = 64
	// maxBlocks is enough for laggingTimes the limit, since all but the newest block are full.
	maxBlocks = laggingTimes*sizeBlocks + 1
	// entryBytes is the approximate size of an entry without its data.
	entryBytes = 64
)

func sizeOfEntry(log *raft.Log) int64 { return int64(len(log.Data)+len(log.Extensions)) + entryBytes }

// append counts entries that follow the others or replace the last of them.
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

// newest returns the first of the newest entries up to last that together have limit bytes, and their bytes, which are
// fewer if the blocks have no more.
func (s *logSizes) newest(last uint64, limit int64) (first uint64, bytes int64) {
	first = last + 1
	for i := len(s.blocks) - 1; i >= 0 && bytes < limit; i-- {
		first, bytes = min(first, s.blocks[i].first), bytes+s.blocks[i].bytes
	}
	return first, bytes
}
