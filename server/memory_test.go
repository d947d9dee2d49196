package server

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend"
)

func TestParseMaxMemory(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "100b": 100, "2k": 2000, "2kb": 2048, "3m": 3e6, "3MB": 3 << 20, "1g": 1e9, "1Gb": 1 << 30,
		"2t": 2e12, "2tb": 2 << 40,
		"0%": 0, "40%": 400, "100%": 1000,
	} {
		got, err := ParseMaxMemory(text, 1000)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "x", "-1", "1.5gb", "1 gb", "kb", "%", "101%", "1e3%", "9223372036854775808",
		"9000000tb", "1gib",
	} {
		_, err := ParseMaxMemory(text, 1000)
		require.ErrorIs(t, err, errMaxMemory, text)
	}
	got, err := ParseMaxMemory("40%", 0)
	require.NoError(t, err)
	require.Zero(t, got, "of what is not known")
}

func TestClientsLimit(t *testing.T) {
	for _, row := range []struct {
		text    string
		machine uint64
		want    int
	}{
		{"10%", 1000, 100},
		{"10%", 0, frontend.DefaultMaxMemoryClientsBytes},
		{"3mb", 1000, 3 << 20},
		{"0", 1000, math.MaxInt},
		{"0", 0, math.MaxInt},
		{"0%", 1000, math.MaxInt},
	} {
		got, err := memory{machineBytes: row.machine}.clientsLimit(row.text)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "%+v", row)
	}
	_, err := memory{}.clientsLimit("many")
	require.ErrorContains(t, err, `max-memory-clients "many": use bytes`)
}

func TestMachineMemory(t *testing.T) {
	const meminfo = "MemTotal:       16000 kB\nMemFree:        1 kB\n"
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, row := range map[string]struct {
		files fstest.MapFS
		want  uint64
	}{
		"nothing is known": {fstest.MapFS{}, 0},
		"no group":         {fstest.MapFS{"proc/meminfo": file(meminfo)}, 16000 << 10},
		"no limit": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n"),
		}, 16000 << 10},
		"a service": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/system.slice/h.service\n"),
			"sys/fs/cgroup/system.slice/h.service/memory.max": file("5000\n"),
			"sys/fs/cgroup/system.slice/memory.max":           file("4000\n"),
		}, 4000},
		"a container, by a path of outside": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/docker/0123\n"),
			"sys/fs/cgroup/memory.max": file("7000\n"),
		}, 7000},
		"version 1": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("5:cpu:/x\n4:memory:/docker/0123\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("6000\n"), "sys/fs/cgroup/cpu/memory.max": file("1\n"),
		}, 6000},
		"version 1, no limit": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/cgroup": file("4:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 16000 << 10},
		"a limit of the address space": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/limits": file(limits("3000", "unlimited")),
		}, 3000},
		"no limit of the address space": {fstest.MapFS{
			"proc/meminfo": file(meminfo), "proc/self/limits": file(limits("unlimited", "unlimited")),
		}, 16000 << 10},
	} {
		require.Equal(t, row.want, machineMemory(row.files), name)
	}
	_ = machineMemory(os.DirFS("/"))
}

func TestHeapLimit(t *testing.T) {
	require.Zero(t, memory{machineBytes: 1 << 30}.heapLimit())
	require.Equal(t, int64(1<<30+1<<29+1<<28), memory{limitBytes: 1 << 30}.heapLimit())
	require.Equal(t, int64(1<<30+1<<29+1<<28+1<<27), memory{limitBytes: 1 << 30, clientsBytes: 1 << 27}.heapLimit())
	require.Equal(t, int64(1<<30+1<<29+1<<28), memory{limitBytes: 1 << 30, clientsBytes: math.MaxInt}.heapLimit(),
		"no limit of clients")
	require.Equal(t, int64(1<<33/10*9), memory{limitBytes: 6 << 30, machineBytes: 1 << 33}.heapLimit(),
		"the rest is the system's")
	require.Equal(t, int64(9<<30), memory{limitBytes: 8 << 30, machineBytes: 8 << 30}.heapLimit(),
		"more than the keys need")
}

// limits is what /proc/self/limits says, of the address space and of others.
func limits(soft, hard string) string {
	return "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             96393                96393                processes \n" +
		fmt.Sprintf("Max address space         %-20s %-20s bytes     \n", soft, hard) +
		"Max file locks            unlimited            unlimited            locks     \n"
}

// TestTooLittleMemory: a snapshot that is installed is a second state beside the first, and beside the clients.
func TestTooLittleMemory(t *testing.T) {
	for _, row := range []struct {
		m    memory
		want string
	}{
		{memory{limitBytes: 40 << 20, clientsBytes: 20 << 20, machineBytes: 100 << 20}, ""},
		{memory{limitBytes: 41 << 20, clientsBytes: 20 << 20, machineBytes: 100 << 20}, "give it 102 MiB"},
		{memory{limitBytes: 40 << 20, clientsBytes: 20<<20 + 1, machineBytes: 100 << 20}, "give it 101 MiB"},
		{memory{limitBytes: 50 << 20, clientsBytes: math.MaxInt, machineBytes: 100 << 20}, ""},
		{memory{limitBytes: 51 << 20, clientsBytes: math.MaxInt, machineBytes: 100 << 20}, "give it 102 MiB"},
		{memory{clientsBytes: 90 << 20, machineBytes: 80 << 20}, ""}, // no limit for keys
		{memory{limitBytes: 40 << 20, clientsBytes: 20 << 20}, ""},   // not known
	} {
		if warning := row.m.shortageWarning(); row.want == "" {
			require.Empty(t, warning, "%+v", row.m)
		} else {
			require.Contains(t, warning, row.want, "%+v", row.m)
		}
	}
}

func TestCheckMemory(t *testing.T) {
	if machineMemory(os.DirFS("/")) == 0 {
		t.Skip("how much memory there is, is not known on this system")
	}
	c := DefaultConfig()
	c.Addr, c.PeerAddr, c.DataDir = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	for share, warned := range map[string]bool{"40%": false, "60%": true} {
		c.MaxMemory = share
		notes, err := Check(c)
		require.NoError(t, err)
		require.Equal(t, warned, strings.Contains(strings.Join(notes, "\n"), "max-memory is too high"), "%s: %q", share, notes)
	}
}

// TestFitClients: room is kept for as many members as there may be, 32, however many there are at the start.
func TestFitClients(t *testing.T) {
	for _, test := range []struct {
		wanted  int
		limit   uint64
		want    int
		refused string
	}{
		{10_000, math.MaxUint64, 10_000, ""},
		{10_000, 11_040, 10_000, ""},
		{10_000, 11_039, 9_999, ""},
		{10_000, 2016, 976, ""},
		{10_000, 1024, 480, ""},
		{10_000, 256, 96, ""},
		{90, 256, 90, ""},
		{10_000, 120, 28, ""},
		{10_000, 80, 10, ""},
		{10_000, 64, 8, ""},
		{
			10_000, 63, 0,
			"the limit of open files is 63, which is not enough: raise it (ulimit -n) to at least 64, better 11040",
		},
	} {
		got, err := fitClients(test.wanted, 32, test.limit)
		if test.refused != "" {
			require.EqualError(t, err, test.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%+v", test)
	}
}

// TestMemoryOfPackages: a full node starts again with the limits and the flags of the manifests, of compose.yaml and of
// the unit, which sets no limit, on a machine of half a gibibyte.
func TestMemoryOfPackages(t *testing.T) {
	for file, pattern := range map[string]string{
		"kubernetes.yaml":  `limits:\n +memory: (\S+)\n`,
		"compose.yaml":     `\n  mem_limit: (\S+)\n`,
		"holdfast.service": `\n(?:MemoryMax|MemoryHigh)=(\S+)\n`,
	} {
		text := protocoltest.ReadFile(t, filepath.Join("..", "cmd", "holdfast", "packaging", file))
		limits := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		if file == "holdfast.service" && limits == nil {
			limits = [][]string{{"", "512M"}}
		}
		require.NotEmpty(t, limits, file)
		c := DefaultConfig().MemoryConfig
		for value, variable := range map[*string]string{
			&c.MaxMemory: "HOLDFAST_MAX_MEMORY", &c.MaxMemoryClients: "HOLDFAST_MAX_MEMORY_CLIENTS",
		} {
			is := regexp.MustCompile(variable + `(?:=|: |, value: )"?([^"\s}]+)`)
			if set := is.FindStringSubmatch(text); set != nil {
				*value = set[1]
			}
		}
		for _, limit := range limits {
			bytes, err := parseMemory("", strings.TrimSuffix(strings.ToLower(limit[1]), "i")+"b", 0) // the units are of 1,024
			require.NoError(t, err)
			m, err := newMemory(c, fstest.MapFS{
				"proc/self/cgroup":         {Data: []byte("0::/\n")},
				"sys/fs/cgroup/memory.max": {Data: []byte(strconv.FormatUint(bytes, 10) + "\n")},
			})
			require.NoError(t, err)
			require.Equal(t, bytes, m.machineBytes)
			require.NotZero(t, m.limitBytes)
			require.Empty(t, m.shortageWarning(), file)
		}
	}
}
