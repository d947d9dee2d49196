package memdisk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

const (
	sectorSize = 512  // bytes that are written to the disk atomically
	blockSize  = 4096 // bytes that are written to the page cache atomically
)

// file is a file, with its contents in the page cache and on the disk.
type file struct {
	data    []byte
	onDisk  []byte
	dirty   map[int]bool // numbers of the sectors written since the last sync
	emptied bool         // truncated since the last sync
}

func newFile() *file { return &file{dirty: make(map[int]bool)} }

func (f *file) truncate() {
	f.data = nil
	f.emptied = true
	clear(f.dirty)
}

func (f *file) write(b []byte, at int64) {
	end := int(at) + len(b)
	f.data = grow(f.data, end)
	copy(f.data[at:], b)
	for s := int(at) / sectorSize; s*sectorSize < end; s++ {
		f.dirty[s] = true
	}
}

// grow extends b with zeros to that length, if it is shorter.
func grow(b []byte, length int) []byte {
	if length <= len(b) {
		return b
	}
	if length <= cap(b) {
		return b[:length] // b was never longer, so the rest of its array is zeros
	}
	longer := make([]byte, length, max(length, min(2*cap(b), length+1<<20)))
	copy(longer, b)
	return longer
}

func (f *file) sync() {
	f.writeBack(f.sectors())
	f.onDisk = grow(f.onDisk, len(f.data))
	f.clean()
}

func (f *file) clean() {
	clear(f.dirty)
	f.emptied = false
}

func (f *file) sectors() []int { return slices.Sorted(maps.Keys(f.dirty)) }

// writeBack writes sectors to the disk.
func (f *file) writeBack(sectors []int) {
	if f.emptied {
		f.onDisk = nil
	}
	for _, s := range sectors {
		from, to := s*sectorSize, min((s+1)*sectorSize, len(f.data))
		f.onDisk = grow(f.onDisk, to)
		copy(f.onDisk[from:to], f.data[from:to])
	}
}

// writeSome writes some dirty sectors to the disk, or none if the file is still to be truncated there.
func (f *file) writeSome(rng *rand.Rand, keep float64) {
	if f.emptied && rng.Float64() >= keep {
		return
	}
	var kept []int
	grows := len(f.data) > len(f.onDisk) && rng.Float64() < keep
	for _, s := range f.sectors() {
		inside := (s+1)*sectorSize <= len(f.onDisk) || grows
		if rng.Float64() < keep && inside {
			kept = append(kept, s)
		}
	}
	f.writeBack(kept)
	if grows {
		f.onDisk = grow(f.onDisk, len(f.data))
	}
}

// failSync writes some sectors to the disk and marks all as clean. In one case of four the page cache is dropped, so
// that processes read what is on the disk.
func (f *file) failSync(rng *rand.Rand) {
	f.writeSome(rng, rng.Float64())
	f.clean()
	if rng.IntN(4) == 0 {
		f.data = slices.Clone(f.onDisk)
	}
}

func (f *file) cut(rng *rand.Rand, keep float64) {
	f.writeSome(rng, keep)
	f.clean()
	f.data = slices.Clone(f.onDisk)
}

func (f *file) clone(known map[node]node) node {
	if c, ok := known[f]; ok {
		return c
	}
	c := &file{data: slices.Clone(f.data), onDisk: slices.Clone(f.onDisk), dirty: maps.Clone(f.dirty), emptied: f.emptied}
	known[f] = c
	return c
}
