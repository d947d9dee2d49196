package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

const (
	// password is the clients' password in runs with clients that do not authenticate.
	password = "jepsen"
	// maxMemory and maxMemoryClients are the limits of a node in runs with hostile clients, in bytes. They suffice for the
	// workloads and scripts, and no more, so that a node that does not enforce them exceeds them in seconds.
	maxMemory, maxMemoryClients = 256 << 20, 64 << 20
	// addressSpace bounds the address space of such a node in bytes, and allAddressSpace that of all nodes together. The
	// runtime reserves more than a gigabyte that it never uses.
	addressSpace, allAddressSpace = 4 << 30, 16 << 30
)

// hostile reports whether the run has hostile clients. Nodes then have limits, and a password, so that some clients
// have not authenticated.
func (t *trial) hostile() bool {
	asked, err := schedule.Select(nemesis.Kinds(), t.o.nemesis, nemesis.Names())
	return err == nil && t.o.target == "holdfast" && slices.ContainsFunc(asked, func(k schedule.Kind) bool {
		return k.Group == schedule.Hostile
	})
}

var errOwnMemory = errors.New("with hostile clients the tests choose --max-memory and --max-memory-clients themselves")

// limits returns the limits of each node in a run with hostile clients.
func (t *trial) limits() (cluster.Limits, error) {
	if strings.Contains(t.o.serverArgs, "--max-memory") {
		return cluster.Limits{}, errOwnMemory
	}
	return cluster.Limits{
		MaxMemory: maxMemory, MaxMemoryClients: maxMemoryClients, AddressSpace: min(addressSpace,
			allAddressSpace/int64(t.o.nodes)),
	}, nil
}

// judgeHostile judges the effect of hostile clients on other clients, and on the resources of nodes. It returns nil if
// nodes were not watched.
func judgeHostile(h *history.History, usage map[string]cluster.Usage, limits cluster.Limits) []checker.Result {
	if usage == nil {
		return nil
	}
	return []checker.Result{checker.Bystanders(h, schedule.Hostile), bounds(h.Faults, usage, limits)}
}

// bounds judges the memory and the disk space that nodes used.
func bounds(faults []history.Fault, usage map[string]cluster.Usage, limits cluster.Limits) checker.Result {
	var findings []string
	counts := map[string]int{}
	resident := limits.Resident(len(usage))
	for _, m := range slices.Sorted(maps.Keys(usage)) {
		u := usage[m]
		if u.Resident > resident {
			findings = append(findings,
				fmt.Sprintf("%s took %d MiB of memory at %.1fs (%s); max-memory %d MiB and max-memory-clients %d MiB allow %d MiB",
					m, u.Resident>>20, time.Duration(u.ResidentAt).Seconds(), under(faults, u.ResidentAt),
					limits.MaxMemory>>20, limits.MaxMemoryClients>>20, resident>>20))
		}
		if u.OnDisk > cluster.MaxOnDisk {
			findings = append(findings, fmt.Sprintf("%s had %d MiB on its disk; %d MiB is the limit", m, u.OnDisk>>20,
				int64(cluster.MaxOnDisk>>20)))
		}
		counts["most memory MiB"] = max(counts["most memory MiB"], int(u.Resident>>20))
		counts["most on disk MiB"] = max(counts["most on disk MiB"], int(u.OnDisk>>20))
		counts["most descriptors"] = max(counts["most descriptors"], int(u.Files))
	}
	r := checker.External(fmt.Sprintf("bounds: %d MiB of memory, %d MiB on disk, %d descriptors",
		resident>>20, int64(cluster.MaxOnDisk>>20), cluster.MaxFiles), len(usage), findings)
	r.Counts = counts
	return r
}

// under names the faults that were active at a time, or else the last fault before it.
func under(faults []history.Fault, at int64) string {
	var names []string
	var last history.Fault
	for _, f := range faults {
		switch {
		case f.Start <= at && at <= f.Stop:
			names = append(names, f.Name)
		case f.Stop < at && f.Stop > last.Stop:
			last = f
		}
	}
	switch {
	case names != nil:
		return "under " + strings.Join(names, ", ")
	case last.Name != "":
		return "after " + last.Name
	}
	return "before any fault"
}
