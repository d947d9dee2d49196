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

// Limits are a node's configured limits in bytes. The zero Limits set none.
type Limits struct {
	MaxMemory        int64 // --max-memory
	MaxMemoryClients int64 // --max-memory-clients
	// AddressSpace (ulimit -v) ends a runaway node before it harms the machine.
	AddressSpace int64
}

// The memory of a node that no flag bounds; server/operating/DAILY.md explains it.
const (
	// allowance is for an idle node, a snapshot in progress and garbage.
	allowance = 256 << 20
	// peerAllowance is for the buffers between a node and each peer.
	peerAllowance = 200 << 20
)

// Resident returns the maximum memory of a node under any load: keys and scripts, half of that for a snapshot being
// installed, all clients together, and the allowances.
func (l Limits) Resident(nodes int) int64 {
	return l.MaxMemory + l.MaxMemory/2 + l.MaxMemoryClients + allowance + int64(nodes-1)*peerAllowance
}

// environment returns the flags as environment variables, which releases without such a flag ignore.
func (l Limits) environment() []string {
	return []string{
		fmt.Sprintf("HOLDFAST_MAX_MEMORY=%d", l.MaxMemory),
		fmt.Sprintf("HOLDFAST_MAX_MEMORY_CLIENTS=%d", l.MaxMemoryClients),
	}
}

const (
	// MaxOnDisk is the maximum size of a node's data folder in bytes, under any load.
	MaxOnDisk = 2 << 30
	// MaxFiles is the limit of descriptors of nodes with [Limits]: fewer than their default number of clients.
	MaxFiles = 1024
)

// Usage is a node's peak usage of each resource.
type Usage struct {
	Resident, OnDisk, Files int64
	// ResidentAt is when the memory last grew.
	ResidentAt int64
}

// Watch polls the members' usage until ctx ends, and returns each member's peaks. Times are read from now.
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

// peakResident returns a process's peak memory in bytes, or 0 if unknown. The kernel keeps the peak, so that a peak
// between two polls counts.
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

// onDisk returns the size of the files in a folder, which may change meanwhile.
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
