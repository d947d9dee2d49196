package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/server"
)

const variablePrefix = "HOLDFAST_"

// envFileVariable is the variable with the path of the node's settings for clients on the same machine, "" for none.
const envFileVariable = "HOLDFAST_ENV_FILE"

// envFile is the path of the node's settings in packages and their unit.
const envFile = "/etc/holdfast/holdfast.env"

// localNode has the settings of the node on the same machine, for clients. In a container the settings come from the
// environment, and otherwise from the file of the node's systemd unit.
type localNode struct {
	from   string            // the file, "" for the environment
	values map[string]string // of the file
	err    error             // why the file could not be read
	note   string            // the origin of the address, for errors
}

const (
	noteVariables = "the address is from the node's variables " + variablePrefix + "…"
	noteDefault   = "the address is the default; --server names another"
)

func findLocalNode() localNode {
	for _, name := range []string{"HOLDFAST_ADDR", "HOLDFAST_ADVERTISE_ADDR"} {
		if os.Getenv(name) != "" {
			return localNode{note: noteVariables}
		}
	}
	path, named := os.LookupEnv(envFileVariable)
	if !named {
		path = envFile
	}
	if path == "" {
		return localNode{note: noteDefault}
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return localNode{note: noteDefault}
	}
	note := "the address is from " + path
	if err != nil {
		note = "the default address, since " + err.Error()
	}
	return localNode{path, parseEnvironment(string(text)), err, note}
}

// get returns a setting, from the environment if it has one.
func (n localNode) get(name string) string { return cmp.Or(os.Getenv(name), n.values[name]) }

// addr returns the address of the node for clients on this machine. That is the address on which it listens, as the
// advertised one may be unreachable from here, for example in a container. With TLS it is the advertised one, which the
// certificate has.
func (n localNode) addr() string {
	addr := cmp.Or(n.get("HOLDFAST_ADDR"), server.DefaultConfig().Addr)
	if n.get("HOLDFAST_TLS_CERT") != "" {
		addr = cmp.Or(n.get("HOLDFAST_ADVERTISE_ADDR"), addr)
	}
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// parseEnvironment parses a file like systemd's EnvironmentFile, without continued lines.
func parseEnvironment(text string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ";") {
			continue
		}
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		values[name] = value
	}
	return values
}

// withNearest adds the closest known flag to the error for an unknown one.
func withNearest(err error, flags *flag.FlagSet) error {
	const unknown = "flag provided but not defined: -"
	name, found := strings.CutPrefix(err.Error(), unknown)
	if !found {
		return err
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	nearest := nearestOf(name, names)
	if distance(name, nearest) > max(1, len(name)/3) {
		return err
	}
	return fmt.Errorf("%w; the nearest is --%s", err, nearest)
}

func flagOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, variablePrefix)), "_", "-")
}

// nearestOf returns the first of the names that are closest to name.
func nearestOf(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance returns the Damerau–Levenshtein distance: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
