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

// envFileVariable names the file of the node's settings for clients on the same machine; empty: there is none.
const envFileVariable = "HOLDFAST_ENV_FILE"

// envFile is where the package and the unit have the node's settings.
const envFile = "/etc/holdfast/holdfast.env"

// localNode is what the settings of a node say to clients on the same machine: the environment's, as in a container, or
// else the settings in the file that the node's unit reads.
type localNode struct {
	from   string            // the file; "": the environment
	values map[string]string // of the file
	err    error             // why the file could not be read
}

func findLocalNode() localNode {
	for _, name := range []string{"HOLDFAST_ADDR", "HOLDFAST_ADVERTISE_ADDR"} {
		if os.Getenv(name) != "" {
			return localNode{}
		}
	}
	path, named := os.LookupEnv(envFileVariable)
	if !named {
		path = envFile
	}
	if path == "" {
		return localNode{}
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return localNode{}
	}
	return localNode{path, parseEnvironment(string(text)), err}
}

// get is a setting; the environment's wins.
func (n localNode) get(name string) string { return cmp.Or(os.Getenv(name), n.values[name]) }

// addr is where clients on this machine reach the node: where it listens. What others are told may lead nowhere from
// here, as from a container whose port has another number outside; but with TLS it is what the certificate is for.
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

// note is for errors: where the address comes from.
func (n localNode) note() string {
	switch {
	case n.err != nil:
		return "the default address, since " + n.err.Error()
	case n.from != "":
		return "the address is from " + n.from
	}
	return ""
}

// parseEnvironment reads a file as systemd's EnvironmentFile does, without its continued lines.
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

// withNearest adds to the error for an unknown flag the nearest of those that there are.
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

// nearestOf is the first of the names that are closest to name.
func nearestOf(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is how many letters must be put in, left out, exchanged or changed with their neighbour to make b of a.
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
