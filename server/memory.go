package server

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/server/frontend"
)

// DefaultMaxMemory leaves room for buffers, and for a second copy of the state while a snapshot
// is installed: see [memory.heapLimit].
const DefaultMaxMemory = "40%"

// DefaultMaxMemoryClients is the default share of the buffers of clients.
const DefaultMaxMemoryClients = "10%"

// memory holds the limits of this node in bytes.
type memory struct {
	limitBytes   uint64 // of keys and scripts, 0 for no limit
	machineBytes uint64 // of the machine or the process's own limit, 0 if unknown
	clientsBytes int    // of all clients together
}

func newMemory(c MemoryConfig, root fs.FS) (m memory, err error) {
	m.machineBytes = machineMemory(root)
	if m.limitBytes, err = ParseMaxMemory(c.MaxMemory, m.machineBytes); err != nil {
		return m, err
	}
	m.clientsBytes, err = m.clientsLimit(c.MaxMemoryClients)
	return m, err
}

// heapLimit returns the soft limit of Go's heap, 0 for none: one and a half times max-memory (with a snapshot and
// uncollected garbage), the clients' share, and 256 MiB for an idle node.
func (m memory) heapLimit() int64 {
	if m.limitBytes == 0 {
		return 0
	}
	limit := m.limitBytes + m.limitBytes/2 + 256<<20
	if m.clientsBytes < math.MaxInt {
		limit += uint64(m.clientsBytes)
	}
	if m.machineBytes != 0 {
		limit = min(limit, max(m.machineBytes/10*9, m.limitBytes+m.limitBytes/8))
	}
	return int64(min(limit, math.MaxInt64))
}

// LimitHeap sets the soft limit of the process's heap, unless the environment has GOMEMLIMIT.
func (s *Server) LimitHeap() {
	if limit := s.memory.heapLimit(); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

// minMachineBytes returns the memory that the machine should have, 0 without a limit. A follower that installs a
// snapshot holds the state twice.
func (m memory) minMachineBytes() uint64 {
	bytes := 2 * m.limitBytes
	if bytes > 0 && m.clientsBytes < math.MaxInt {
		bytes += uint64(m.clientsBytes)
	}
	return bytes
}

// shortageWarning returns a warning if the node would not fit into the machine or container once its keys reach
// max-memory, and "" if it would fit or the available memory is unknown.
func (m memory) shortageWarning() string {
	if m.machineBytes == 0 || m.minMachineBytes() <= m.machineBytes {
		return ""
	}
	return fmt.Sprintf("max-memory is too high for %d MiB of memory: the kernel may kill the node before keys reach it; "+
		"give it %d MiB (twice max-memory, and max-memory-clients), or lower max-memory", m.machineBytes>>20, (m.minMachineBytes()-1)>>20+1)
}

// logMemory logs the limits in bytes.
func (s *Server) logMemory() {
	m := s.memory
	if warning := m.shortageWarning(); warning != "" {
		s.logger.Warn(warning)
	}
	s.logger.Info("client limits", "max_clients", s.config.MaxClients, "max_memory_clients", s.config.MaxMemoryClients,
		"bytes", m.clientsBytes)
	switch {
	case m.limitBytes > 0:
		s.logger.Info("memory limit", "max_memory", s.config.MaxMemory, "bytes", m.limitBytes,
			"machine_bytes", m.machineBytes, "least_machine_bytes", m.minMachineBytes(), "heap_limit_bytes", m.heapLimit())
	case strings.HasSuffix(s.config.MaxMemory, "%"):
		s.logger.Warn("no memory limit: how much memory there is, is not known here; set max-memory in bytes")
	default:
		s.logger.Info("no memory limit", "max_memory", s.config.MaxMemory)
	}
}

var errMaxMemory = errors.New("use bytes, a number with kb, mb, gb or tb, a percentage such as 40%, or 0 for no limit")

// ParseMaxMemory reads a value of max-memory: bytes, with or without a unit of [memoryUnits], or a percentage of
// machineBytes. The result 0 is no limit, as is a percentage of an unknown machineBytes, which is 0.
func ParseMaxMemory(text string, machineBytes uint64) (limitBytes uint64, err error) {
	return parseMemory("max-memory", text, machineBytes)
}

func parseMemory(flag, text string, machineBytes uint64) (limitBytes uint64, err error) {
	if number, is := strings.CutSuffix(text, "%"); is {
		percent, err := strconv.ParseUint(number, 10, 64)
		if err != nil || percent > 100 {
			return 0, fmt.Errorf("%s %q: %w", flag, text, errMaxMemory)
		}
		return uint64(float64(machineBytes) / 100 * float64(percent)), nil
	}
	end := strings.LastIndexAny(text, "0123456789") + 1
	factor, known := memoryUnits[strings.ToLower(text[end:])]
	n, err := strconv.ParseUint(text[:end], 10, 64)
	if err != nil || !known || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%s %q: %w", flag, text, errMaxMemory)
	}
	return n * factor, nil
}

// clientsLimit reads a value of max-memory-clients, for [frontend.Memory].
func (m memory) clientsLimit(text string) (int, error) {
	n, err := parseMemory("max-memory-clients", text, m.machineBytes)
	switch {
	case err != nil:
		return 0, err
	case n == 0 && strings.HasSuffix(text, "%") && m.machineBytes == 0:
		return frontend.DefaultMaxMemoryClientsBytes, nil
	case n == 0:
		return math.MaxInt, nil
	}
	return int(n), nil
}

// memoryUnits are the units of Redis's configuration.
var memoryUnits = map[string]uint64{
	"": 1, "b": 1,
	"k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30, "t": 1e12, "tb": 1 << 40,
}

// machineMemory returns the memory of the machine, or a lower limit of the process's control group or address space
// (ulimit -v), or 0 if unknown.
func machineMemory(root fs.FS) uint64 {
	total := memTotal(root)
	if limit := addressSpace(root); limit != 0 && (total == 0 || limit < total) {
		total = limit
	}
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		// A line is number:controllers:path. Version 2 has no controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var limit uint64
		switch parts[1] {
		case "":
			limit = groupLimit(root, "sys/fs/cgroup", parts[2], "memory.max")
		case "memory":
			limit = groupLimit(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		}
		if limit != 0 && (total == 0 || limit < total) {
			total = limit
		}
	}
	return total
}

// groupLimit returns the lowest limit of a control group and its parents, 0 for none. In a container the path may be
// the host's, of which the container sees only the top.
func groupLimit(root fs.FS, top, group, file string) (lowest uint64) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, _ := fs.ReadFile(root, path.Join(top, group, file))
		limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && (lowest == 0 || limit < lowest) {
			lowest = limit
		}
		if group == "/" {
			return lowest
		}
	}
}

// addressSpace returns the limit of this process's address space, 0 for none.
func addressSpace(root fs.FS) uint64 {
	text, _ := fs.ReadFile(root, "proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "Max address space"); is {
			soft, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			limit, _ := strconv.ParseUint(soft, 10, 64) // "unlimited" is 0
			return limit
		}
	}
	return 0
}

// memTotal returns the machine's memory according to /proc/meminfo, 0 if unknown.
func memTotal(root fs.FS) uint64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "MemTotal:"); is {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
