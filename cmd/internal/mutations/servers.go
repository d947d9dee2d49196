package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// serversTable has the servers that are wrong on purpose, which the partition tests must find. An entry has the form of
// a mistake in a package's table, but may be in several packages, so that the folder stands before each declaration.
// Its comments are a name with what is wrong, and which runs find it (see jepsen/README.md).
const serversTable = "jepsen/mutants.txt"

// serverEnv is the environment variable that turns a mistake of a server on, by its name.
const serverEnv = "HOLDFAST_MUTANT"

// server is a mistake with a name, as one mutant for each of the functions that it changes.
type server struct {
	name  string
	parts []mutant
}

// writeServers puts an overlay for the go command into dir, overlay.json, that has every mistake of the table behind a
// choice by its name.
func writeServers(root, dir string) error {
	servers, err := readServers(root)
	if err != nil {
		return err
	}
	s, names := schemata{}, map[string]int{}
	for i, server := range servers {
		names[server.name] = i + 1
		for _, m := range server.parts {
			s.add(i+1, m)
		}
	}
	byName := fmt.Sprintf("import \"os\"\n\nvar mutationChosen = %#v[os.Getenv(%q)]\n", names, serverEnv)
	_, _, err = s.write(root, dir, byName)
	return err
}

// readServers reads the table and finds the mistakes in the tree.
func readServers(root string) ([]server, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(serversTable)))
	if err != nil {
		return nil, err
	}
	var all []server
	packages := map[string][]*sourceFile{}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		var s server
		var e entry
		for line := range strings.SplitSeq(paragraph, "\n") {
			if name, ok := strings.CutPrefix(line, "# mutant: "); ok {
				s.name, _, _ = strings.Cut(name, ":")
			}
			if strings.HasPrefix(line, "#") {
				continue
			}
			if err := e.read(line); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", serversTable, s.name, err)
			}
		}
		if s.parts, err = e.findParts(root, packages); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", serversTable, s.name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// findParts returns a mutant for each declaration that the entry changes. packages keeps what was parsed.
func (e entry) findParts(root string, packages map[string][]*sourceFile) (parts []mutant, err error) {
	for from := 0; from < len(e.changes); {
		anchor, to := e.changes[from].anchor, from
		dir, name, _ := strings.Cut(anchor, " ")
		part := entry{}
		for ; to < len(e.changes) && e.changes[to].anchor == anchor; to++ {
			part.changes = append(part.changes, change{name, e.changes[to].old, e.changes[to].new})
		}
		if packages[dir] == nil {
			if packages[dir], err = parsePackage(root, dir); err != nil {
				return nil, err
			}
		}
		m, err := part.find(packages[dir])
		if err != nil {
			return nil, err
		}
		if !choosable(m) {
			return nil, fmt.Errorf("%s: one build of many cannot have it", anchor)
		}
		parts, from = append(parts, m), to
	}
	return parts, nil
}
