package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// The style of the house, as a test: imports, packages and sizes. Every failure names the remedy.

const module = "github.com/holdfast/holdfast/"

// layers lists, for each top-level folder, which of ours it may import.
var layers = map[string][]string{
	"protocol": {"protocol"},
	"fsm":      {"fsm", "protocol"},
	"server":   {"server", "fsm", "protocol"},
	"cmd":      {"cmd", "server", "fsm", "protocol"},
	"jepsen":   {"jepsen", "protocol"},
	"bench":    {"bench", "protocol"},

	"documents.go": {}, // go:embed reaches no folder above its own
}

// impure may not be imported by the state machine: two replicas must not be able to differ.
var impure = []string{
	"time", "net", "os", "math/rand", "math/rand/v2", "crypto/rand", "context", "log", "log/slog",
	"runtime",
}

type source struct {
	path string // slash-separated, from the root of the tree
	file *ast.File
	set  *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) imports() []string {
	var paths []string
	for _, i := range s.file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var found []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		found = append(found, source{filepath.ToSlash(rel), file, set})
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// goLibrary is a module that uses nothing of the others, and that any of them may use as others do.
const goLibrary = "server/clients/go/holdfast"

func TestImportArrows(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue // tests may look at everything
		}
		top, _, _ := strings.Cut(s.path, "/")
		allowed, ok := layers[top]
		if !ok {
			t.Errorf("%s: the top level has no folder %q: put it below one of cmd, server, fsm, protocol, jepsen, bench",
				s.path, top)
			continue
		}
		for _, path := range s.imports() {
			layer, ours := strings.CutPrefix(path, module)
			if layer == goLibrary {
				continue
			}
			layer, _, _ = strings.Cut(layer, "/")
			if ours && !slices.Contains(allowed, layer) {
				t.Errorf("%s imports %s: %s may import only %v; move the shared part down a layer", s.path, path, top, allowed)
			}
		}
	}
}

// redconUser is the only file of the product that imports redcon.
const redconUser = "protocol/encode.go"

// TestRedconOnlyEncodes: protocol, and with it fsm, imports redcon for its Append functions. Its
// server and its reader open sockets and panic on bad input; see server/frontend/DESIGN.md.
func TestRedconOnlyEncodes(t *testing.T) {
	const redcon = "github.com/tidwall/redcon"
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(s.imports(), redcon) {
			continue
		}
		if s.path != redconUser {
			t.Errorf("%s imports redcon: encode replies in %s", s.path, redconUser)
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "redcon" && !strings.HasPrefix(sel.Sel.Name, "Append") {
				t.Errorf("%s: redcon.%s: only the Append functions are used", s.set.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

// rooms lists, for packages of the server, which others of the server they may import. The rest gets
// what it needs as functions and interfaces.
var rooms = map[string][]string{
	"server/lifecycle":   {},
	"server/members":     {},
	"server/incarnation": {},
	"server/peer":        {"server/peer/wire", "server/members", "server/loglimit", "server/incarnation"},
	"server/peer/wire":   {},
	"server/memberrpc":   {"server/members", "server/peer/wire"},
	"server/reconfig":    {"server/members"},
	"server/bootstrap":   {"server/members", "server/memberrpc", "server/peer", "server/store"},
	"server/consistency": {"server/members", "server/memberrpc", "server/store", "server/replica"},
	"server/store":       {"server/store/", "server/members", "server/incarnation"},
	"server/raftnode":    {"server/peer/wire", "server/members", "server/store"},
	"server/forward":     {"server/peer/wire", "server/members"},
	"server/replica": {
		"server/members", "server/incarnation", "server/store", "server/raftnode", "server/forward",
		"server/sessions", "server/peer/wire",
	},
	"server/frontend": {
		"server/acl", "server/audit", "server/loglimit", "server/replica", "server/reconfig",
		"server/sessions", "server/push", "server/pubsub", "server/tracking", "server/frontend/",
	},
	"server/frontend/discovery": {"server/members", "server/replica"},
	"server/frontend/metrics": {
		"server/frontend/discovery", "server/replica", "server/sessions", "server/pubsub",
		"server/tracking",
	},
	"server/frontend/observe": {"server/push"},
	"server/pubsub":           {"server/push"},
	"server/sessions":         {"server/push"},
	"server/push":             {},
	"server/tracking":         {"server/push"},
	"server/api":              {},
	"server/console":          {"server/api"},
	"server/web":              {"server/acl", "server/api", "server/console"},
	"server/backup":           {"server/members", "server/store", "server/raftnode"},
	"server/secrets":          {"server/acl"},
	"server/acl":              {},
	"server/loglimit":         {},
	"server/audit":            {"server/members", "server/loglimit"},
}

// withoutMachine are rooms that know events of the state machine, and not the machine.
var withoutMachine = []string{
	"server/pubsub", "server/sessions", "server/tracking", "server/frontend/observe", "server/frontend/discovery",
}

func TestServerArrows(t *testing.T) {
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		allowed, ok := rooms[dir]
		if s.test() || !ok {
			continue
		}
		for _, imported := range s.imports() {
			to, ours := strings.CutPrefix(imported, module)
			below := slices.ContainsFunc(allowed, func(a string) bool {
				return to == a || strings.HasSuffix(a, "/") &&
					strings.HasPrefix(to, a)
			})
			if ours && strings.HasPrefix(to, "server/") && !below {
				t.Errorf("%s imports %s: %s may import only %v of the server; hand it the function it needs", s.path, imported,
					dir, allowed)
			}
			if to == "fsm" && slices.Contains(withoutMachine, dir) {
				t.Errorf("%s imports %s: events of the state machine are in fsm/event", s.path, imported)
			}
			if dir == "server/raftnode" && strings.HasPrefix(to, "fsm") {
				t.Errorf("%s imports %s: raft does not know what is in an entry", s.path, imported)
			}
		}
	}
}

// commandRooms are the rooms of commands on keys and the values of a type, in fsm. They work with package command, and
// know neither each other nor the machine.
var commandRooms = []string{"fsm/bit", "fsm/hash", "fsm/keys", "fsm/list", "fsm/set", "fsm/str", "fsm/zset"}

func TestCommandsKnowNoMachine(t *testing.T) {
	above := append([]string{"fsm"}, commandRooms...)
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		if s.test() || dir != "fsm/command" && !slices.Contains(commandRooms, dir) {
			continue
		}
		for _, imported := range s.imports() {
			if to, ours := strings.CutPrefix(imported, module); ours && slices.Contains(above, to) {
				t.Errorf("%s imports %s: move what types share to fsm/command; ask the machine by command.Host", s.path, imported)
			}
		}
	}
}

// withLocks are the files of the state machine with a lock: the machine's, and those of compiled programs, of rights, and of
// what scripts cost, which are no state.
var withLocks = []string{"fsm/machine.go", "fsm/lua/cache.go", "fsm/judge.go", "fsm/scriptcost.go"}

func TestStateMachineIsPure(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.path, "fsm/") || s.test() {
			continue
		}
		for _, path := range s.imports() {
			if slices.Contains(impure, path) {
				t.Errorf("%s imports %s: take the value from the log entry instead", s.path, path)
			}
			if path == "sync" && !slices.Contains(withLocks, s.path) {
				t.Errorf("%s imports sync: the machine has its one lock in fsm/machine.go; only what is no state has its own: %v",
					s.path, withLocks)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a go statement: the state machine has no goroutines", s.set.Position(g.Pos()))
			}
			return true
		})
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		dir := filepath.ToSlash(filepath.Dir(s.path))
		documented[dir] = documented[dir] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment: add one with what it promises and where to start reading", dir)
		}
	}
}

// Sizes that make a reader scroll. Tables of data are exempt: a function or file is measured
// only where it has statements.
const (
	maxFunctionLines = 90
	maxFileLines     = 700
	// maxLine is in characters. What no line break makes shorter, as scripts and regular expressions, may be longer.
	maxLine, maxLongLines = 120, 200
)

// longFunctions are exempt, each with its reason.
var longFunctions = map[string]string{
	"fsm/lua/vm.go:execute": "the dispatch loop of the virtual machine: its cases share the frame in registers",
}

func TestSizes(t *testing.T) {
	long := 0
	for _, s := range sources(t) {
		text := protocoltest.ReadFile(t, filepath.Join("..", "..", s.path))
		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(line) > maxLine+1 {
				long++
			}
		}
		if s.test() || strings.HasPrefix(filepath.Base(s.path), "table") {
			continue
		}
		if lines := s.set.Position(s.file.End()).Line; lines > maxFileLines {
			t.Errorf("%s has %d lines: split it by what its parts are for (limit %d)", s.path, lines, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines && longFunctions[s.path+":"+f.Name.Name] == "" {
				t.Errorf("%s: %s has %d lines: name its parts (limit %d)", s.path, f.Name.Name, lines, maxFunctionLines)
			}
		}
	}
	require.LessOrEqual(t, long, maxLongLines, "lines of more than %d characters: break the new ones", maxLine)
}

func TestOnlyMainExits(t *testing.T) {
	for _, s := range sources(t) {
		if s.file.Name.Name == "main" && strings.HasSuffix(s.path, "main.go") || s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := call.X.(*ast.Ident)
			if ok && (pkg.Name == "os" && call.Sel.Name == "Exit" || pkg.Name == "log" && strings.HasPrefix(call.Sel.Name,
				"Fatal")) {
				t.Errorf("%s: %s.%s: return an error and let main decide", s.set.Position(n.Pos()), pkg.Name, call.Sel.Name)
			}
			return true
		})
	}
}

// TestTestsDoNotSleep: a sleep is a guess, except in a bubble of testing/synctest, where
// time is virtual. A package counts as in a bubble when its tests import synctest, or the
// cluster of replicatest, which runs in one.
func TestTestsDoNotSleep(t *testing.T) {
	bubbles := map[string]bool{}
	var sleepers []source
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		dir := filepath.Dir(s.path)
		for _, path := range s.imports() {
			bubbles[dir] = bubbles[dir] || path == "testing/synctest" || strings.HasSuffix(path, "/replicatest")
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				sleepers = append(sleepers, s)
			}
			return true
		})
	}
	for _, s := range sleepers {
		if !bubbles[filepath.Dir(s.path)] {
			t.Errorf("%s sleeps in real time: wait for what you wait for, or run inside testing/synctest", s.path)
		}
	}
}
