package raftnode

import "github.com/hashicorp/raft"

// logSizes knows how many of the newest entries make up how many bytes. Entries are counted in
// blocks, as many blocks as the limit needs.
type logSizes struct {
	limit  int64       // bytes
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
	if i := s.oldest(); i > 0 {
		s.blocks = append(s.blocks[:0], s.blocks[i:]...)
	}
}

// oldest is the block that the limit reaches back to.
func (s *logSizes) oldest() int {
	i, bytes := len(s.blocks), int64(0)
	for i > 0 && bytes < s.limit {
		i--
		bytes += s.blocks[i].bytes
	}
	return i
}

// newest returns the first of the newest entries, up to last, that have limit bytes together, and
// their bytes. The bytes are fewer if the blocks hold no more.
func (s *logSizes) newest(last uint64) (first uint64, bytes int64) {
	first = last + 1
	for _, b := range s.blocks[s.oldest():] {
		first, bytes = min(first, b.first), bytes+b.bytes
	}
	return first, bytes
}
