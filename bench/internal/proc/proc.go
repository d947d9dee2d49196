// Package proc reads the usage of processes from /proc. Without /proc, as outside of Linux, every call fails, and the
// figures are omitted.
package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of /proc/<pid>/stat: USER_HZ is 100 on every Linux.
const ticksPerSecond = 100

// Usage is the total usage of processes up to now.
type Usage struct {
	CPUSeconds float64
	// RSSBytes are each process's resident bytes, in the order of the pids.
	RSSBytes []int64
	// Each is the usage of each process, in the same order.
	Each []Process
}

// Process is the usage of one process.
type Process struct {
	CPUSeconds float64
	// ReadBytes counts bytes of system calls, mostly from sockets.
	ReadBytes int64
	// WrittenBytes counts bytes to files and sockets. Linux's count for disks has whole folios, megabytes for a small
	// write.
	WrittenBytes int64
}

// Read sums up the usage of processes.
func Read(pids ...int) (Usage, error) {
	var u Usage
	var errs error
	for _, pid := range pids {
		cpu, err := cpuSeconds(strconv.Itoa(pid))
		rss, rssErr := rssBytes(strconv.Itoa(pid))
		errs = errors.Join(errs, err, rssErr)
		u.CPUSeconds += cpu
		u.RSSBytes = append(u.RSSBytes, rss)
		one := Process{CPUSeconds: cpu}
		// Another user's figures cannot be read.
		one.ReadBytes, _ = field(strconv.Itoa(pid), "io", "rchar:")
		one.WrittenBytes, _ = field(strconv.Itoa(pid), "io", "wchar:")
		u.Each = append(u.Each, one)
	}
	return u, errs
}

// Self is the CPU time of this process.
func Self() (float64, error) { return cpuSeconds("self") }

// cpuSeconds returns the user and system time.
func cpuSeconds(pid string) (float64, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may contain anything.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%s/stat: %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	return float64(user+system) / ticksPerSecond, errors.Join(err, systemErr)
}

func rssBytes(pid string) (int64, error) {
	kilobytes, err := field(pid, "status", "VmRSS:")
	return kilobytes << 10, err
}

// field returns the number after a name in a file of a process.
func field(pid, file, name string) (n int64, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/" + file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("read /proc/%s/%s: no %s", pid, file, name)
}
