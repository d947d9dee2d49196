package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Bounds of what a node may take, whatever its clients do. The memory of a node that leaves them is limited by
// [Config], so that it does not harm the machine.
const (
	MaxResident = 2 << 30 // bytes of memory
	MaxOnDisk   = 2 << 30 // bytes of its data folder
	// MaxFiles is the limit of descriptors that nodes are started with: fewer than their default of clients.
	MaxFiles = 1024
)

// Usage is the most that a node took of each.
type Usage struct{ Resident, OnDisk, Files int64 }

// Watch looks at what members take until ctx ends, and returns the most that each took.
func Watch(ctx context.Context, members []string, fleet Tracers, dataDir func(string) string) map[string]Usage {
	most := map[string]Usage{}
	for ctx.Err() == nil {
		for _, m := range members {
			u := most[m]
			for _, pid := range fleet.PIDs(m) {
				u.Resident = max(u.Resident, resident(pid))
				u.Files = max(u.Files, descriptors(pid))
			}
			u.OnDisk = max(u.OnDisk, onDisk(dataDir(m)))
			most[m] = u
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
	return most
}

// Findings are the bounds that were left.
func (u Usage) Findings(member string) []string {
	var findings []string
	over := func(what string, got, limit int64) {
		if got > limit {
			findings = append(findings, fmt.Sprintf("%s had %d MiB %s; %d MiB is the limit", member, got>>20, what, limit>>20))
		}
	}
	over("of memory", u.Resident, MaxResident)
	over("on its disk", u.OnDisk, MaxOnDisk)
	return findings
}

// resident is the memory of a process in bytes; 0 where that cannot be known.
func resident(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	words := bytes.Fields(data)
	if len(words) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(words[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

func descriptors(pid int) int64 {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return int64(len(entries))
}

// onDisk is the size of the files in a folder; they come and go meanwhile.
func onDisk(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
