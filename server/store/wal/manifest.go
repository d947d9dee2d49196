package wal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

const (
	manifestName   = "MANIFEST"
	manifestFormat = 1
	segmentSuffix  = ".seg"
)

// manifest lists the files of the log and the valid entries. It is replaced atomically, so every change is atomic.
type manifest struct {
	Format int
	// NextSegment is the next segment number. No segment with this or a higher number was ever listed.
	NextSegment uint64
	// First is the index of the first valid entry. Earlier entries in the first segment were deleted.
	First uint64
	// Segments has the segments in the order of their entries. Only the last one is appended to.
	Segments []segmentInfo
	// Closed is set by Close and unset by Open. While it is set, Last must be the last entry found, and no file may
	// have an unfinished end.
	Closed bool
	Last   uint64
}

// segmentInfo is the manifest's description of a segment.
type segmentInfo struct {
	Number uint64
	// First is the index of the first entry, if there is any.
	First uint64
	// Last is the index of the last valid entry, or 0 in the segment that is being written.
	Last uint64
	// Size is the constant size of the file in bytes.
	Size int64
}

func segmentName(number uint64) string { return fmt.Sprintf("%016x", number) + segmentSuffix }

func (m *manifest) clone() *manifest {
	c := *m
	c.Segments = slices.Clone(m.Segments)
	return &c
}

// save durably replaces the manifest in a folder.
func (m *manifest) save(folder *vfs.Folder) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	text = append(text, '\n')
	text = fmt.Appendf(text, "%08x\n", crc32.Checksum(text, castagnoli))
	if err := folder.Replace(manifestName, text); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

func loadManifest(fs vfs.FS, dir string) (*manifest, error) {
	name := filepath.Join(dir, manifestName)
	text, err := vfs.ReadFile(fs, name)
	if vfs.IsMissing(err) {
		return nil, &DamageError{Path: name, Reason: "it is missing"}
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	const trailer = len("01234567\n")
	if len(text) < trailer {
		return nil, &DamageError{Path: name, Reason: "it is too short"}
	}
	body, sum := text[:len(text)-trailer], text[len(text)-trailer:]
	if !bytes.Equal(sum, fmt.Appendf(nil, "%08x\n", crc32.Checksum(body, castagnoli))) {
		return nil, &DamageError{Path: name, Reason: "its checksum is wrong"}
	}
	m := &manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, &DamageError{Path: name, Reason: err.Error()}
	}
	if m.Format != manifestFormat {
		return nil,
			fmt.Errorf("log in %s has format %d, this release reads %d: use the release that wrote it, or a newer one", dir,
				m.Format, manifestFormat)
	}
	if reason := m.inconsistency(); reason != "" {
		return nil, &DamageError{Path: name, Reason: reason}
	}
	return m, nil
}

// inconsistency describes what makes the manifest invalid, or returns "".
func (m *manifest) inconsistency() string {
	for i, s := range m.Segments {
		tail := i == len(m.Segments)-1
		switch {
		case s.First == 0, s.Size < headSize, s.Number >= m.NextSegment:
			return fmt.Sprintf("segment %d is impossible", s.Number)
		case tail && s.Last != 0, !tail && s.Last < s.First:
			return fmt.Sprintf("segment %d has an impossible end", s.Number)
		case !tail && m.Segments[i+1].First != s.Last+1:
			return fmt.Sprintf("there is a gap behind segment %d", s.Number)
		}
	}
	if len(m.Segments) > 0 && (m.First < m.Segments[0].First || len(m.Segments) > 1 && m.First > m.Segments[0].Last) {
		return "its first entry is not in its first segment"
	}
	return ""
}
