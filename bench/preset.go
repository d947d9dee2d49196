package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/report"
)

// presets are sets of flags, which explicit flags override. Each preset's result is stored under its name, where
// --write finds it.
var presets = map[string]map[string]string{
	// The table of bench/RESULTS.md: 12 minutes, and once some more to build etcd.
	"table": {
		"peers":     "redis-always,redis,redis-wait,redlock,etcd,etcd-mutex,holdfast,holdfast-followers",
		"workloads": "uncontended:1+64+256,hot:64,pipelined:50,reads:256",
		"depth":     "16,64", "keys": "10000", "rounds": "3", "warmup": "700ms", "measure": "3s",
	},
	// Native locks beside other forms and other servers' queues: 20 minutes, and once some more to build etcd.
	"native": {
		"peers":     "holdfast-native,holdfast,holdfast-redisson,redis-always,redis-redisson,redis-wait,etcd-mutex,zookeeper-lock",
		"workloads": "uncontended:1+16+64+256,hot:64+1000,contended:256,handoffs:64@holdfast+redis-always+redis-wait,publish:1000@holdfast+redis-always",
		"shared":    "16", "keys": "10000", "rounds": "3", "warmup": "700ms", "measure": "3s",
		"timeout": "30s",
	},
	// The memory and CPU time that native locks, waiters and sessions take, once each: five minutes.
	"native-limits": {
		"peers":     "holdfast-native,holdfast,redis-always",
		"workloads": "memory@holdfast-native+holdfast,parked,native-sessions,native-connections",
		"rounds":    "1", "warmup": "2s", "measure": "10s", "timeout": "30s",
	},
	// Lock libraries and their peers, by language: nine minutes, and once some more to install them.
	"libraries": {
		"peers": "go-holdfast,go-etcd,go-rueidislock,go-redsync,python-holdfast,python-asyncio,python-kazoo," +
			"python-redis-py,java-holdfast,java-redisson,java-curator,typescript-holdfast,typescript-redlock",
		"workloads": "uncontended:1,hot:64", "rounds": "3", "warmup": "1s", "measure": "3s",
	},
	// Measurements that the table lacks, once each: ten minutes.
	"limits": {
		"peers": "holdfast,holdfast-debug,redis-always,redis-sentinel,etcd",
		"workloads": "idle@holdfast+redis-always,memory@holdfast+redis-always,snapshot@holdfast-debug+redis-always," +
			"restart@holdfast-debug+redis-always,failover@holdfast+redis-sentinel+etcd,freeze@holdfast+redis-sentinel+etcd," +
			"hang@holdfast-debug",
		"keys": "10000", "rounds": "1", "warmup": "2s", "measure": "10s",
	},
	// Pairs beside few and many held locks, on one, three and five nodes. One round would show the machine rather than
	// the locks.
	"growth": {
		"peers": "holdfast-1,holdfast,holdfast-5,redis-always", "workloads": "growth:64",
		"keys": "10000", "rounds": "4", "warmup": "1s", "measure": "4s",
	},
	// A command's cost for a node, on one core and on two, for server/operating/SIZING.md: six minutes.
	"sizing": {
		"peers":     "holdfast,holdfast-native,holdfast-1core,holdfast-native-1core",
		"workloads": "uncontended:1+16+64+256,renewals:256@holdfast+holdfast-1core,reads:256@holdfast+holdfast-1core,pipelined:50@holdfast+holdfast-1core,hot:64@holdfast-native+holdfast-native-1core",
		"depth":     "64", "keys": "10000", "rounds": "3", "warmup": "1s", "measure": "4s",
	},
	// The effect of one team's flood on another team's locks, with and without a limit: two minutes.
	"flood": {
		"peers": "holdfast-users", "workloads": "flood", "rounds": "3", "warmup": "2s", "measure": "5s",
	},
	// The effect on locks of neighbours that send much work at a time; with --before also for the build before a
	// change: six minutes.
	"beside": {
		"peers": "holdfast", "workloads": "beside", "rounds": "3", "warmup": "2s", "measure": "10s",
	},
	// Pairs of this build and of the build that --before names, in turn: two minutes.
	"before": {
		"peers": "holdfast,holdfast-before", "workloads": "uncontended:1+64+256",
		"keys": "10000", "rounds": "5", "warmup": "700ms", "measure": "3s",
	},
	// Servers in different data centres: 15 minutes, and once some more to build etcd.
	"wan": {
		"peers": "holdfast,etcd", "workloads": "uncontended:1+64+256", "round-trips": "10ms,30ms,80ms",
		"keys": "10000", "rounds": "3", "warmup": "4s", "measure": "6s",
	},
	// Elections while all cores are busy: ten minutes.
	"busy": {
		"peers": "holdfast", "workloads": "busy", "rounds": "1", "warmup": "2s", "measure": "10m",
	},
	// An hour of pairs, as a curve.
	"long": {
		"peers": "holdfast", "workloads": "long", "rounds": "1", "warmup": "2s", "measure": "1h",
	},
}

// presetOrder is the order of the results in a document.
var presetOrder = []string{
	"table", "limits", "growth", "before", "wan", "busy", "long", "sizing", "flood", "beside", "native",
	"native-limits", "libraries",
}

// applyPreset sets the flags of a preset that were not given.
func applyPreset(fs *flag.FlagSet, name string) error {
	if name == "" {
		return nil
	}
	flags, ok := presets[name]
	if !ok {
		return fmt.Errorf("there is no preset %q, but %s", name, strings.Join(presetOrder, ", "))
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs error
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		if !given[flag] {
			errs = errors.Join(errs, fs.Set(flag, flags[flag]))
		}
	}
	return errs
}

// readResults reads the presets' results in a folder, by preset.
func readResults(dir string) (map[string]*report.Result, error) {
	all := make(map[string]*report.Result)
	for _, name := range presetOrder {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what --preset %s left: %w", name, err)
		}
		r := &report.Result{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("read %s.json: %w", name, err)
		}
		all[name] = r
	}
	return all, nil
}

// sections returns the sections of bench/RESULTS.md for which there are results. Native locks have their own section,
// since the two take long and are rarely measured together.
func sections(results map[string]*report.Result) (map[string]string, error) {
	var performance, native []*report.Result
	for _, name := range presetOrder {
		r := results[name]
		switch {
		case r == nil, name == "libraries":
		case strings.HasPrefix(name, "native"):
			native = append(native, r)
		default:
			performance = append(performance, r)
		}
	}
	all := make(map[string]string)
	if results["table"] != nil {
		all[report.Performance] = report.Summary(performance)
	}
	if results["native"] != nil {
		all[report.NativeLocks] = report.Native(native)
	}
	if results["libraries"] != nil {
		all[report.LockLibraries] = report.Libraries(results["libraries"])
	}
	if len(all) == 0 {
		return nil, errors.New("neither --preset table nor --preset native nor --preset libraries left a result")
	}
	return all, nil
}

// rewriteResults rewrites the sections of a document for which a folder has results.
func rewriteResults(file, dir string, stderr io.Writer) error {
	results, err := readResults(dir)
	if err != nil {
		return err
	}
	parts, err := sections(results)
	if err != nil {
		return fmt.Errorf("in %s %w", dir, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	document := string(text)
	for _, section := range slices.Sorted(maps.Keys(parts)) {
		if document, err = report.Rewrite(document, section, parts[section]); err != nil {
			return fmt.Errorf("rewrite %s: %w", file, err)
		}
		fmt.Fprintln(stderr, "rewrote section", section, "of", file)
	}
	return os.WriteFile(file, []byte(document), 0o644)
}
