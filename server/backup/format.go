package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

const (
	magic = "HFBACKUP"
	// Version is the version of the file's format.
	Version = 1

	headBytes      = len(magic) + 4
	blockHeadBytes = 1 + 4 + 4
	endBytes       = 8 + 8 + 32
	maxBody        = 1 << 20
	pieceBytes     = 256 << 10 // of the state in a block
)

// The kinds of blocks.
const (
	blockMeta  = 'M'
	blockState = 'S'
	blockEnd   = 'E'
)

// Meta says where a backup comes from.
type Meta struct {
	Release      string `json:"release"`
	EntryVersion int    `json:"entryVersion"`
	ClusterID    string `json:"clusterId"`
	NodeID       string `json:"nodeId"`
	// Index is of the newest log entry that changed the state, and Term raft's at that time.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// TakenAt is the node's wall clock before the backup was begun.
	TakenAt time.Time `json:"takenAt"`
	// ClusterTimeMillis is the cluster time of the state.
	ClusterTimeMillis int64 `json:"clusterTimeMillis"`
	// Stale: the node gave what it had, without asking the leader. Acknowledged writes may be missing.
	Stale bool `json:"stale,omitempty"`
	Keys  int  `json:"keys"`
	Locks int  `json:"locks"`
}

// Summary is what the end of a file says.
type Summary struct {
	StateBytes int64
	Blocks     int64
	FileBytes  int64
	SHA256     string // of all bytes but the last block, hexadecimal
}

// What may be wrong with a file. Each reads as the end of "FILE: …".
var (
	ErrNoBackup = errors.New("it is not a backup")
	ErrCutOff   = errors.New("it is cut off: the backup was not finished")
	ErrDamaged  = errors.New("it is damaged")
	ErrNewer    = errors.New("a newer release wrote it")
)

func damaged(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendBlockHead appends what stands before a body.
func appendBlockHead(dst []byte, kind byte, body []byte) []byte {
	start := len(dst)
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	return binary.LittleEndian.AppendUint32(dst, blockSum(dst[start:], body))
}

// blockSum is the checksum of a block; head has kind and length.
func blockSum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}
