package memdisk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

const (
	sectorSize = 512  // bytes that reach the disk together or not at all
	blockSize  = 4096 // bytes that a write reaches the page cache with, together
)

// file is content, as processes see it and as the disk has it.
type file struct {
	data    []byte
	onDisk  []byte
	dirty   map[int]bool // numbers of sectors that were written since the last sync
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

// grow makes b that long, if b is shorter.
func grow(b []byte, length int) []byte {
	if length <= len(b) {
		return b
	}
	if length <= cap(b) {
		return b[:length] // b was never longer: what follows is zeros
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

// writeBack brings sectors to the disk.
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

// writeSome brings some dirty sectors to the disk, or none if the file is still to be truncated there.
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

// failSync brings some sectors to the disk and marks all as clean. Processes see the sectors as before; in one
// case of four processes see what the disk has, as if the pages had been dropped.
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
