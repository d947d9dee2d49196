package fsm

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// forbidden lists imports by which replicas could differ, or that belong to package server.
var forbidden = []string{
	"context", "log", "log/slog", "math/rand", "math/rand/v2", "net", "os", "os/exec", "os/signal", "hash/maphash",
	"runtime", "syscall", "time", "unsafe", "crypto/rand", "reflect",
}

// onlyInMachine lists imports of machine.go, which has the only lock, of judge.go for state shared by readers, and of
// scriptcost.go for data that is no state.
var onlyInMachine = []string{"sync", "sync/atomic"}

// TestPurity: this package and those below have no clock, I/O, goroutine or range over a map with a visible order.
// Commands, keyspace, collection, waits and rights promise that.
func TestPurity(t *testing.T) {
	protocoltest.SkipShort(t, "reads the types of the whole package")
	root, err := exec.Command("go", "env", "GOROOT").Output() // which a test that was built with -trimpath does not know
	require.NoError(t, err)
	build.Default.GOROOT = strings.TrimSpace(string(root))
	positions := token.NewFileSet()
	read := importer.ForCompiler(positions, "source", nil) // it reads a package once
	for folder, least := range map[string]int{
		".": 10, "keyspace": 5, "collection": 4, "waits": 4, "rights": 2,
		"command": 5, "bit": 1, "hash": 0, "keys": 3, "list": 1, "set": 1, "str": 2, "zset": 2,
	} {
		t.Run(folder, func(t *testing.T) { checkPurity(t, positions, read, folder, least) })
	}
}

// checkPurity checks the package in a folder, which has more files than least.
func checkPurity(t *testing.T, positions *token.FileSet, read types.Importer, folder string, least int) {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var files []*ast.File
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, filepath.Join(folder, name), nil, parser.ParseComments)
		require.NoError(t, err)
		checkImports(t, name, file)
		files = append(files, file)
	}
	require.Greater(t, len(files), least)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: read}
	_, err = config.Check("github.com/holdfast/holdfast/fsm", positions, files, info)
	require.NoError(t, err)
	for _, file := range files {
		checkStatements(t, positions, file, info)
	}
}

func checkImports(t *testing.T, name string, file *ast.File) {
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		if slices.Contains(forbidden, path) || strings.HasPrefix(path, "net/") {
			t.Errorf("%s imports %s: the state machine knows no clock, no chance and no I/O; take what it needs out of the "+
				"log entry, or do it in package server", name, path)
		}
		if slices.Contains(onlyInMachine, path) &&
			!slices.Contains([]string{"machine.go", "judge.go", "scriptcost.go"}, name) {
			t.Errorf("%s imports %s: the one lock is in machine.go; everything else runs under it", name, path)
		}
	}
}

func checkStatements(t *testing.T, positions *token.FileSet, file *ast.File, info *types.Info) {
	excused := map[int]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "// unordered: ") {
				excused[positions.Position(comment.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a go statement: the state machine runs in its caller's goroutine", positions.Position(n.Pos()))
		case *ast.SelectStmt, *ast.SendStmt:
			t.Errorf("%s: a channel: the state machine runs in its caller's goroutine", positions.Position(n.Pos()))
		case *ast.RangeStmt:
			at := positions.Position(n.Pos())
			if _, isMap := info.TypeOf(n.X).Underlying().(*types.Map); isMap && !excused[at.Line] {
				t.Errorf("%s: ranges over a map, whose order differs from run to run: range over something ordered, or say why "+
					"it cannot show in a comment \"// unordered: …\" on the line", at)
			}
		}
		return true
	})
}

// TestEveryRowIsBoundOnce: each row of the table that is routed to the state machine is bound once, and nothing else is
// bound.
func TestEveryRowIsBoundOnce(t *testing.T) {
	bound := map[string]int{}
	for _, room := range typeCommands {
		for name := range room {
			bound[name]++
		}
	}
	for _, family := range otherCommands {
		for name := range family {
			bound[name]++
		}
	}
	var walk func(rows []protocol.Command)
	walk = func(rows []protocol.Command) {
		for i := range rows {
			row := &rows[i]
			walk(row.Subcommands)
			_, asLocal := scriptLocals[row.Name]
			switch {
			case row.Route != protocol.Local:
				require.Equal(t, 1, bound[row.Name], "bind %q in its type's table Ops, or in fsm/ops.go", row.Name)
				require.False(t, asLocal, "%q is no local command: bind it elsewhere in fsm/ops.go", row.Name)
			case asLocal:
				require.False(t, row.Has(protocol.FlagNoScript), "scripts may not call %q", row.Name)
			default:
				require.Zero(t, bound[row.Name], "%q is answered by package server: take it out of fsm/ops.go", row.Name)
			}
			delete(bound, row.Name)
		}
	}
	walk(protocol.Commands())
	require.Empty(t, bound, "bindings without a row in protocol's table")
}

// TestRowsWriteAsTheyAreRouted: a read that writes would make replicas differ.
func TestRowsWriteAsTheyAreRouted(t *testing.T) {
	for name, b := range newMachine().ops {
		if _, message := messageOps[name]; message {
			require.True(t, b.writes, name)
			continue
		}
		if _, read := lockReads[name]; read {
			require.False(t, b.writes, name)
			require.Nil(t, b.row, name)
			continue
		}
		if b.row == nil {
			require.Contains(t, []string{
				"exec", "wait-for-key", "drop", "set-notifications", "unblock", "lock-command", "node-keepalive", "end-connections",
				"return-grant",
			},
				name)
			require.True(t, b.writes, name)
			continue
		}
		require.Equal(t, b.row.Has(protocol.FlagWrite), b.row.Route == protocol.Write && !strings.HasPrefix(name, "script|"),
			name)
	}
}

// TestReadsWriteNothing runs all rows of the Read route on a full database.
func TestReadsWriteNothing(t *testing.T) {
	d := newDriver(t)
	for _, key := range generatedKeys {
		d.do("set", key, "1", "PX", "100000")
	}
	want := dump(t, d.m)
	g := newGenerator(1, "")
	for range 5000 {
		words := g.next()
		row, _ := protocol.Find(words)
		if row == nil || row.Route != protocol.Read && !row.Has(protocol.FlagReadOnly) {
			continue
		}
		d.read(words...)
		require.Equal(t, want, dump(t, d.m), quote(words))
	}
}

// Requests that decode but make no sense get an error, and never panic.
func TestStrangeRequests(t *testing.T) {
	d := newDriver(t)
	for _, words := range [][]string{
		{""},
		{"nosuch"},
		{"nosuch", "a\r\nb", strings.Repeat("x", 1000)},
		{"get"},
		{"get", "a", "b"},
		{"set", "a"},
		{"script"},
		{"script|load"},
		{"object|encoding"},
		{"hello", "3"},
		{"exec"},
		{"exec", "\xff", ""},
		{"exec", "", "\xff"},
		{"exec", "\x00", ""},
		{"exec", "", string(protocol.AppendTransaction(nil, 0, nil, nil))},
		{"mset", "a"},
		{"eval", "return 1"},
	} {
		body := protocoltest.AppendRequest(nil, 3, words...)
		replies := d.apply(body)
		require.Len(t, replies, 1)
		text := line(replies[0])
		require.Contains(t, text, "ERR", "%q", words)
		require.NotContains(t, replies[0].Str, "\n")
	}
}
