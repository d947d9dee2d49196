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

// Limits are what a node is configured to take at most, in bytes. The zero Limits leave a node as it is.
type Limits struct {
	MaxMemory        int64 // --max-memory
	MaxMemoryClients int64 // --max-memory-clients
	// AddressSpace ends a node that runs away before it harms the machine (ulimit -v).
	AddressSpace int64
}

// What a node takes beside what the flags bound; server/operating/DAILY.md says for what.
const (
	// allowance is for an idle node, a snapshot under way and what is not yet collected.
	allowance = 256 << 20
	// peerAllowance is for the buffers between a node and each of the others.
	peerAllowance = 200 << 20
)

// Resident is how much memory a node may take whatever clients do: keys and scripts and half as
// much again for a snapshot that is installed, all clients together, and the allowances.
func (l Limits) Resident(nodes int) int64 {
	return l.MaxMemory + l.MaxMemory/2 + l.MaxMemoryClients + allowance + int64(nodes-1)*peerAllowance
}

// environment sets the flags. A release that does not know a flag starts all the same.
func (l Limits) environment() []string {
	return []string{
		fmt.Sprintf("HOLDFAST_MAX_MEMORY=%d", l.MaxMemory),
		fmt.Sprintf("HOLDFAST_MAX_MEMORY_CLIENTS=%d", l.MaxMemoryClients),
	}
}

const (
	// MaxOnDisk bounds a node's data folder in bytes, whatever clients do.
	MaxOnDisk = 2 << 30
	// MaxFiles is the limit of descriptors that nodes with [Limits] are started with: fewer than
	// their default of clients.
	MaxFiles = 1024
)

// Usage is the most that a node took of each.
type Usage struct {
	Resident, OnDisk, Files int64
	// ResidentAt is when the memory was seen to grow last.
	ResidentAt int64
}

// Watch looks at what members take until ctx ends, and returns the most that each took. Times are
// read from now.
func Watch(ctx context.Context, members []string, fleet Tracers, dataDir func(string) string,
	now func() int64,
) map[string]Usage {
	most := map[string]Usage{}
	for ctx.Err() == nil {
		for _, m := range members {
			u := most[m]
			for _, pid := range fleet.PIDs(m) {
				if peak := peakResident(pid); peak > u.Resident {
					u.Resident, u.ResidentAt = peak, now()
				}
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

// peakResident is the most memory that a process ever had, in bytes; 0 where that cannot be known.
// The kernel keeps the peak, so a peak between two looks counts too.
func peakResident(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, line, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	line, _, _ = bytes.Cut(line, []byte(" kB\n"))
	kib, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return kib << 10
}

func descriptors(pid int) int64 {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return int64(len(entries))
}

// onDisk is the size of the files in a folder, which come and go meanwhile.
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
